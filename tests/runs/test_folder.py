from pathlib import Path

import pytest

from metaprior.runs.folder import RunFolder, RunFolderError


@pytest.mark.parametrize("content", ["{}", "[]", '{"finished": null}', '{"starts": []}'])
def test_a_run_json_that_does_not_say_whether_the_run_has_finished_is_damaged(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(content, encoding="utf-8")
    run = RunFolder(tmp_path)
    for use in (lambda: run.finished, lambda: run.saved_step("prior"), run.note_finished):
        with pytest.raises(RunFolderError) as caught:
            use()
        assert str(caught.value).startswith(f'{path} is damaged: it does not say whether the run has finished ("fin')
    assert path.read_text(encoding="utf-8") == content, "nothing is written over what could not be read"
    path.write_text('{"finished": false}', encoding="utf-8")  # as the message says
    run.note_finished()
    assert run.finished
