from benchmarks import speed

TINY = speed.Settings(width=2)


def test_only_the_head_moves_and_the_trunk_is_learned_or_frozen() -> None:
    head, frozen = (speed.unet_problem(TINY, speed.HEAD, frozen=frozen) for frozen in (False, True))
    assert head.trunk_stages == frozen.trunk_stages == 12
    assert any(name.startswith("stem.") for name in head.network.plain_names)
    assert not frozen.network.plain_names
