"""Load archives of frames: npy folders, npz, NetCDF and Zarr files, with every frame checked."""
