"""Every Python example of the documentation runs as it is written, and the results are what its page says."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.docs.pages import DOCS, PAGES, name_of, python_blocks, run_examples, text_of

WITH_EXAMPLES = [page for page in PAGES if python_blocks(page)]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
def test_the_examples_of_a_page_run_and_warn_of_nothing_that_it_does_not_quote(page: Path) -> None:
    warned = run_examples(page)["warned"]
    assert [message for message in warned if message.splitlines()[0] not in text_of(page)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_python_is_hidden_in_blocks_that_do_not_run(page: Path) -> None:
    text = text_of(page)
    assert "```py\n" not in text
    assert "\n    import metaprior" not in text
    assert "\n    from metaprior" not in text


def test_the_snippet_of_the_start_page_has_the_scores_of_its_table() -> None:
    scores = run_examples(DOCS / "index.md")["scores"]
    shown = {
        int(cells[0]): [float(cell) for cell in cells[1:]]
        for line in text_of(DOCS / "index.md").splitlines()
        if line.startswith("| ") and (cells := line.strip("| ").split(" | "))[0].isdigit()
    }
    assert set(shown) == {0, 1, 5, 20}
    for shots, (rmse, nll, covered) in shown.items():
        row = scores.row(shots=shots)
        assert row["rmse"] == pytest.approx(rmse, rel=0.15)
        assert row["nll"] == pytest.approx(nll, abs=0.2)
        assert row["coverage_90"] == pytest.approx(covered, abs=0.05)


def test_the_estimators_of_a_table_cover_what_they_say() -> None:
    names = run_examples(DOCS / "tutorials" / "from-scikit-learn.md")
    assert names["inside"] == pytest.approx(0.9, abs=0.06)
    assert names["search"].best_params_ == {"hidden": (20,)}
    assert abs(names["high"][0]) < 1e-12  # no parcel of two kilometres is late


def test_the_meta_gradients() -> None:
    names = run_examples(DOCS / "methods" / "meta-gradients.md")
    assert names["chosen"].engine.exact
    assert float(names["value"].loss) > 0


def test_abml() -> None:
    names = run_examples(DOCS / "methods" / "abml.md")
    assert names["inner"].kl > 0  # lambda has left theta
    assert names["outer"].nll_support == names["outer"].kl == names["outer"].hyperprior == 0  # the query set alone
    assert names["maml"].theta_.sigma.count_nonzero() == 0
    assert names["trunk"] == 5  # all of flatten, linear, relu, linear, relu
    means, scales, noise = 6, 6, 1  # tensors of the network, and the noise scale
    assert names["learner"].theta_.log_lr.shape == (means + scales + noise,)


def test_the_context() -> None:
    names = run_examples(DOCS / "methods" / "context.md")
    assert names["forecast"].mean.shape == names["before"].mean.shape == names["task"].query.y.shape


def test_the_ways_of_adapting() -> None:
    learner = run_examples(DOCS / "adaptation.md")["learner"]
    assert learner.calibration_.examples == (0, 1, 2, 5, 10, 20)


def test_the_hierarchy() -> None:
    page = run_examples(DOCS / "methods" / "hierarchical-vi.md")
    assert page["terms"].elbo == -(page["terms"].nll + page["terms"].kl + page["terms"].hyper_kl)
    assert page["forecast"].mean.shape == page["parts"].std.shape


def test_conformal_coverage_is_the_level_where_the_forecasts_own_is_not() -> None:
    names = run_examples(DOCS / "guides" / "conformal.md")
    assert names["of_forecast"] < 0.6
    for found in ("of_conformal", "of_sets", "of_tasks"):
        assert names[found] == pytest.approx(0.9, abs=0.06)
    assert min(names["shares"]) < 0.7  # no promise for a single task


def test_the_training() -> None:
    names = run_examples(DOCS / "training.md")
    assert [summary.tasks for summary in names["learner"].history_] == [64, 64]
    assert torch.equal(names["std"], names["forecast"].std)
    assert torch.equal(names["epistemic"], names["forecast"].epistemic)
    assert [len(names[name]) for name in ("stations", "training", "unseen")] == [48, 36, 12]
    assert names["own"].history_[0].bad_tasks == 0


def test_what_was_saved_is_what_was_learned() -> None:
    names = run_examples(DOCS / "guides" / "save-and-load.md")
    assert names["same"]
    assert names["files"] == ["fit", "prior"]


def test_missing_targets_are_counted() -> None:
    names = run_examples(DOCS / "guides" / "missing-targets.md")
    assert names["record"].missing == 80
    assert len(names["warned"]) == 1


def test_calibrated_intervals_cover_what_they_state() -> None:
    for covered in run_examples(DOCS / "guides" / "calibrate.md")["coverage"].values():
        assert covered == pytest.approx(0.9, abs=0.08)


def test_the_prior_is_better_than_a_network_alone() -> None:
    rows = run_examples(DOCS / "guides" / "compare.md")["rows"]
    best = rows["prior, adapted"]["nll"]
    assert best < rows["network alone"]["nll"]
    assert best < rows["prior, not adapted"]["nll"]


def test_a_part_of_the_network_is_random() -> None:
    names = run_examples(DOCS / "guides" / "random-part.md")
    assert names["random_weights"] == 51
    assert sum(parameter.numel() for parameter in names["network"].parameters()) == 2801  # "51 of 2,801"


def test_few_shot_classes_are_learned_from_their_examples() -> None:
    accuracy = run_examples(DOCS / "guides" / "labels.md")["accuracy"]
    assert accuracy[0] == pytest.approx(0.2)  # chance
    assert accuracy[5] > 0.7


def test_the_plan_stays_inside_the_budget() -> None:
    chosen = run_examples(DOCS / "guides" / "memory.md")["chosen"]
    assert chosen.engine.exact
    assert chosen.choice.peak <= chosen.budget == 2 * 2**30


def test_forecast_maps() -> None:
    names = run_examples(DOCS / "solar" / "forecasting.md")
    assert names["forecast"].mean.shape == names["unseen"][0].query.y.shape
    assert names["found"]["adapted"].lead_minutes == (30, 60, 90, 120)
    assert names["learner"].problem(1).trunk_stages > 0  # the default is the head
    assert str(names["train"].stop) < str(names["test"].first)


def test_doubtful_power_is_masked() -> None:
    names = run_examples(DOCS / "solar" / "sites" / "data.md")
    assert np.isnan(names["plant"].usable).sum() >= np.isnan(names["plant"].power).sum()
