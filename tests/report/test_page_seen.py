"""What a person sees of a report, in a real browser."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ditk_ray.record.record import SweepStatus, TrialState
from ditk_ray.report.data import gather
from ditk_ray.report.page import write_report
from tests.processes import PATIENCE
from tests.report.contrast import LOW_CONTRAST
from tests.report.simulated import simulate

pytestmark = pytest.mark.browser

HOSTILE = "<script>document.title='taken'</script><b>bold</b> &amp; \"</script>"


def test_the_outcome_is_the_first_thing_to_read(shared, sweep_folder):
    best = gather(sweep_folder).best
    assert best.id in shared.text(".lead")
    assert shared.text(".lead").startswith("31 trials in 1m40s: the best, ")
    assert "1 trial failed." in shared.text(".lead")
    assert shared.text("h1") == "simulated"
    assert shared.text("#best-title") == f"The best: {best.id}"
    facts = dict(zip(shared.texts(".facts dt"), shared.texts(".facts dd"), strict=True))
    assert facts["trials"] == "31"
    assert facts["failed"] == "1"
    assert facts["wall time"] == "1m40s"


def test_every_trial_has_its_curve_and_the_best_is_marked(shared):
    shared.look_at("#chart-curves")
    # One for each of the 30 trials with an evaluation, and the best once more on top.
    assert shared.lines("chart-curves") == 31
    assert shared.texts("#curves .legend label")[-1].startswith("best: trial_")
    accent = shared.colour("#curves .mark-best", "color")
    lines = shared.page.locator("#chart-curves path.js-line")
    assert accent in lines.evaluate_all("all => all.map(line => getComputedStyle(line).stroke)")
    star = shared.page.locator("#chart-curves .points path").last
    assert star.evaluate("star => getComputedStyle(star).fill") == accent


def test_unticking_a_kind_of_curves_hides_it(shared):
    shared.look_at("#chart-curves")
    before = shared.lines("chart-curves")
    early = shared.page.locator("#curves .legend label", has_text="ended early")
    number = int(early.inner_text().split("(")[1].rstrip(")"))
    early.locator("input").focus()
    shared.page.keyboard.press("Space")
    shared.settle()
    assert shared.lines("chart-curves") == before - number
    shared.page.keyboard.press("Space")
    shared.settle()
    assert shared.lines("chart-curves") == before


def test_each_parameter_has_a_chart_with_a_point_for_each_trial(shared):
    assert shared.texts("#parameters h3") == [
        "learning_rate",
        "discount_factor",
        "batch_size",
        "nstep",
        "type",
        "decay",
    ]
    shared.look_at("#chart-parameter-0")
    assert shared.page.locator("#chart-parameter-0 .points path").count() == 30 + 1  # and the star
    assert "1e-4" in shared.texts("#chart-parameter-0 .xtick")
    shared.look_at("#chart-parameter-2")
    assert shared.texts("#chart-parameter-2 .xtick") == ["32", "64", "128"]
    shared.look_at("#chart-parameter-5")
    assert 1 < shared.page.locator("#chart-parameter-5 .points path").count() < 30


def test_parallel_coordinates_name_every_axis_and_draw_every_trial(shared):
    shared.look_at("#chart-parallel")
    names = " ".join(shared.texts("#chart-parallel .annotation"))
    for name in ("learning_rate", "discount_factor", "batch_size", "decay", "eval_value", "absent"):
        assert name in names
    assert shared.lines("chart-parallel") == 31


def test_importances_say_how_they_were_found(shared):
    caption = shared.text("#caption-importances")
    assert "learning_rate mattered most" in caption
    assert "Optuna's fANOVA over 30 finished trials" in caption
    assert "decay" in caption.partition("Left out")[2]
    shared.look_at("#chart-importances")
    assert shared.page.locator("#chart-importances .barlayer .point").count() == 5


def test_a_header_sorts_by_keyboard_and_says_so(shared, sweep_folder):
    header = shared.page.locator("#trials thead th", has_text="learning_rate")
    rates = {
        trial.id: trial.record.params["policy.learn.learning_rate"]
        for trial in gather(sweep_folder).scored
    }
    header.locator("button").focus()
    shared.page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    rising = sorted(rates, key=rates.__getitem__)
    assert shared.table() == [*rising, "trial_00030"]  # the one without a value is last
    shared.page.keyboard.press("Space")
    assert header.get_attribute("aria-sort") == "descending"
    assert shared.table() == [*reversed(rising), "trial_00030"]
    assert shared.page.locator("#trials [aria-sort]").count() == 1


def test_the_filter_keeps_the_trials_that_match_all_its_words(shared):
    shared.page.get_by_label("Filter").fill("failed trial_00030")
    assert shared.table() == ["trial_00030"]
    assert shared.text("#filtered") == "1 of 31"
    shared.page.get_by_label("Filter").fill("")
    assert len(shared.table()) == 31


def test_a_trial_is_selected_by_keyboard_marked_everywhere_and_cleared_by_escape(opened, report):
    seen = opened(report)
    seen.look_at("#chart-curves")
    curves = seen.lines("chart-curves")
    second = seen.table()[1]
    seen.page.locator("#trials tbody button").first.focus()
    seen.page.keyboard.press("ArrowDown")
    assert seen.page.evaluate("document.activeElement.textContent") == second
    seen.page.keyboard.press("Enter")
    assert seen.text("#card-title") == second
    assert seen.text("#status").startswith(f"{second} selected, ")
    row = seen.page.locator("#trials tr.chosen")
    assert row.locator("button").get_attribute("aria-pressed") == "true"
    seen.look_at("#chart-curves")
    assert seen.lines("chart-curves") == curves + 1
    seen.look_at("#chart-parameter-0")
    ring = seen.page.locator("#chart-parameter-0 .points path").last
    assert ring.evaluate("ring => getComputedStyle(ring).stroke") == seen.colour("body", "color")

    seen.page.keyboard.press("Escape")
    assert not seen.page.locator("#card").is_visible()
    seen.look_at("#chart-curves")
    assert seen.lines("chart-curves") == curves


def test_a_click_in_a_chart_selects_the_trial_and_the_card_leads_to_the_next(opened, report):
    seen = opened(report)
    seen.look_at("#chart-parameter-1")
    star = seen.page.locator("#chart-parameter-1 .points path").last.bounding_box()
    seen.page.mouse.click(star["x"] + star["width"] / 2, star["y"] + star["height"] / 2)
    best, second = seen.table()[:2]
    assert seen.text("#card-title") == best.removesuffix(" ★")
    seen.page.get_by_role("button", name="Next trial").click()
    assert seen.text("#card-title") == second


def test_hovering_a_point_names_its_trial(shared):
    shared.look_at("#chart-parameter-1")
    star = shared.page.locator("#chart-parameter-1 .points path").last.bounding_box()
    shared.page.mouse.move(star["x"] + star["width"] / 2, star["y"] + star["height"] / 2)
    shared.page.wait_for_selector("#chart-parameter-1 .hovertext")
    best = shared.text("#best-title").removeprefix("The best: ")
    assert best in shared.text("#chart-parameter-1 .hovertext")


def test_dark_mode_reaches_the_page_and_the_charts_also_while_it_is_open(opened, report):
    seen = opened(report, color_scheme="light")
    seen.look_at("#chart-curves")
    light = (
        seen.colour("body", "background-color"),
        seen.colour("#chart-curves .xtick text", "fill"),
    )
    seen.page.emulate_media(color_scheme="dark")
    seen.settle()
    dark = seen.colour("body", "background-color"), seen.colour("#chart-curves .xtick text", "fill")
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] == "rgb(21, 24, 27)"
    assert light[1] != dark[1]


def test_on_paper_dark_mode_is_left_behind(opened, report):
    seen = opened(report, color_scheme="dark")
    seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert seen.colour("body", "background-color") == "rgb(255, 255, 255)"
    assert seen.page.locator(".chart .main-svg").count() >= 10  # also those further down
    seen.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert seen.colour("body", "background-color") == "rgb(21, 24, 27)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_what_is_behind_it(opened, report, scheme):
    seen = opened(report, color_scheme=scheme)
    seen.page.evaluate("report.charts.drawNow(); report.selection.choose(0)")
    seen.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    seen.settle()
    assert seen.page.evaluate(LOW_CONTRAST) == []


def test_a_phone_shows_it_without_scrolling_sideways(opened, report):
    seen = opened(report, width=360, height=740, is_mobile=True, has_touch=True)
    for section in ("#curves", "#progress", "#parameters", "#parallel", "#trials", "#details"):
        seen.look_at(section)
    widths = seen.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths == [360, 360]
    box = seen.page.locator("#trials .scroll")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    box.evaluate("box => box.scrollLeft = 200")
    name = seen.page.locator("#trials tbody th").first.bounding_box()
    assert name["x"] == pytest.approx(box.bounding_box()["x"], abs=2)
    axes = seen.page.locator("#chart-parallel .annotation").all()
    assert all(0 <= axis.bounding_box()["x"] < 360 for axis in axes)


def test_a_failure_is_shown_with_the_end_of_its_log(opened, report):
    seen = opened(report)
    assert "ValueError: no such luck" in seen.text("#failures summary")
    assert seen.text("#failures pre") == "epoch 1\nValueError: no such luck"
    seen.page.locator("#failures button", has_text="trial_00030").click()
    assert seen.text("#card-title") == "trial_00030"


def test_hostile_names_are_shown_as_text(opened, simulation):
    simulation.record.name = f"name {HOSTILE}"
    simulation.record.metric = HOSTILE
    simulation.record.job["space"] = {}
    for place, value in enumerate((HOSTILE, "plain", f"{HOSTILE}2")):
        trial = simulation.add([float(place)], {HOSTILE: value, f"a.{HOSTILE}": place})
        trial.best_metrics[HOSTILE] = float(place)
        rows = [{HOSTILE: float(place), "env_step": 10}, {HOSTILE: place + 1.0, "env_step": 20}]
        simulation.write_metrics(trial, rows)
    simulation.fail(HOSTILE, f"{HOSTILE}\n\x1b[31m</pre>{HOSTILE}\n")
    seen = opened(write_report(simulation.write()))
    assert seen.text("h1") == simulation.record.name
    assert "taken" not in seen.page.title().partition("<")[0]
    assert HOSTILE in seen.text("#failures .error")
    assert seen.text("#failures pre") == f"{HOSTILE}\n</pre>{HOSTILE}"
    assert HOSTILE in " ".join(seen.texts("#trials tbody td"))
    seen.look_at("#chart-curves")
    assert seen.text("#chart-curves .ytitle") == HOSTILE
    seen.look_at("#chart-parallel")
    assert HOSTILE in " ".join(seen.texts("#chart-parallel .annotation"))
    assert seen.page.locator("b, #chart-curves a").count() == 0


def test_a_script_that_got_in_would_not_run(opened, report):
    seen = opened(report)
    seen.page.evaluate(
        "() => { const script = document.createElement('script');"
        "script.textContent = 'window.taken = true'; document.body.append(script) }"
    )
    assert seen.page.evaluate("window.taken") is None
    assert "Content Security Policy" in seen.complaints.pop()


def test_the_command_of_the_best_trial_can_be_copied(opened, simulation):
    simulation.add([1.0])
    folder = simulation.write()
    (folder / "best_config.py").write_text("")
    seen = opened(write_report(folder), permissions=["clipboard-read", "clipboard-write"])
    seen.page.get_by_role("button", name="Copy").click()
    seen.page.get_by_role("button", name="Copied").wait_for()
    command = f"python {folder}/best_config.py"
    assert seen.text("#command") == command
    assert seen.page.evaluate("navigator.clipboard.readText()") == command


def test_every_chart_has_a_name_and_says_what_it_shows(opened, report):
    seen = opened(report)
    charts = seen.page.locator(".chart").all()
    assert len(charts) == 10
    for chart in charts:
        for reference in ("aria-labelledby", "aria-describedby"):
            text = seen.page.locator(f"#{chart.get_attribute(reference)}").inner_text()
            assert text.strip()
    ids = seen.page.evaluate(
        "[...document.querySelectorAll('body [id]:not(svg *)')].map(e => e.id)"
    )
    assert len(ids) == len(set(ids))
    for landmark in ("banner", "main", "navigation", "contentinfo"):
        assert seen.page.get_by_role(landmark).count() == 1
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.textContent").startswith("Skip to")
    seen.page.keyboard.press("Enter")
    assert seen.page.url.endswith("#trials")


def test_a_sweep_without_trials_opens(opened, simulation):
    simulation.record.status, simulation.record.ended = SweepStatus.RUNNING, None
    seen = opened(write_report(simulation.write()))
    assert "nothing was tried yet" in seen.text(".lead")
    assert "no trials yet" in seen.text("#trials")
    assert seen.page.locator(".chart").count() == 0


def test_a_sweep_that_failed_wholly_opens(opened, simulation):
    simulation.record.status = SweepStatus.FAILED
    for _ in range(2):
        simulation.fail("ValueError: no such luck", "about to fail\n")
    seen = opened(write_report(simulation.write()))
    assert seen.text(".lead") == "2 trials in 1m40s: none got a score. All of them failed."
    assert "2 trials" in seen.text("#failures summary")
    assert len(seen.table()) == 2


def test_a_running_sweep_of_one_trial_opens(opened, simulation):
    simulation.record.status, simulation.record.ended = SweepStatus.RUNNING, None
    trial = simulation.add([1.0, 2.0], {"a": 1}, TrialState.RUNNING, ended=None)
    with (Path(trial.dir) / "metrics.jsonl").open("a") as file:
        file.write('{"eval_value": 3.0, "env_st')
    seen = opened(write_report(simulation.write()))
    assert "trial_00000 reached eval_value 2 after 100 environment steps" in seen.text(".lead")
    assert "Still running" in seen.text(".lead")
    seen.look_at("#chart-curves")
    assert seen.lines("chart-curves") == 2
    assert "That takes at least two trials with a score." in seen.text("#progress")
    assert "No parameter varies." in seen.text("#progress")


def test_values_of_all_types_have_their_place(opened, simulation):
    values = [None, True, "1", 1, [64, 64], 0.5, {"a": 1}, False]
    for place, value in enumerate(values):
        simulation.add([float(place), float("nan")], {"mixed": value, "rate": 0.1 * place})
    seen = opened(write_report(simulation.write()))
    seen.look_at("#chart-parameter-0")
    assert sorted(seen.texts("#chart-parameter-0 .xtick")) == sorted(
        ["'1'", "0.5", "1", "False", "None", "True", "[64, 64]", "{'a': 1}"]
    )
    assert seen.page.locator("#chart-parameter-0 .points path").count() == 8 + 1


def test_the_seeds_of_the_best_trial_are_drawn_beside_their_mean(opened, simulation):
    trial = simulation.add([1.0, 3.0], {"a": 1})
    rows = [
        {
            "eval_value": mean,
            "env_step": step,
            "eval_value_seed_0": mean - 1,
            "eval_value_seed_1": mean + 1,
        }
        for step, mean in ((0, 1.0), (100, 3.0))
    ]
    simulation.write_metrics(trial, rows)
    seen = opened(write_report(simulation.write()))
    assert "Its thin lines are its 2 seeds." in seen.text("#caption-curves")
    seen.look_at("#chart-curves")
    assert seen.lines("chart-curves") == 1 + 2 + 1


def test_what_a_scheduler_changed_is_told_with_the_trial(opened, simulation):
    changes = [{"env_step": 0, "params": {"a": 1}}, {"env_step": 500, "params": {"a": 2}}]
    simulation.add([1.0, 2.0], {"a": 2}, changes=changes)
    seen = opened(write_report(simulation.write()))
    seen.page.locator("#trials tbody button").first.click()
    assert seen.text("#parameters") == "Score against each parameter\n\nNo parameter varies."
    assert seen.texts("#card-changes li") == ["from step 0: a = 1", "from step 500: a = 2"]


def test_a_thousand_trials_stay_usable(opened, tmp_path):
    folder = simulate(tmp_path / "large", trials=1000, evaluations=50).write()
    begun = time.monotonic()
    report = write_report(folder)
    assert time.monotonic() - begun < 30 * PATIENCE
    assert report.stat().st_size < 8_000_000
    begun = time.monotonic()
    seen = opened(report)
    assert time.monotonic() - begun < 30 * PATIENCE
    seen.look_at("#chart-curves")
    assert seen.lines("chart-curves") == 1001
    assert len(seen.table()) == 200
    seen.page.locator("#trials tbody button").nth(3).click()
    seen.look_at("#chart-curves")
    assert seen.lines("chart-curves") == 1002
    seen.page.locator("#more").click()
    assert len(seen.table()) == 1000
    assert seen.page.evaluate("document.querySelectorAll('*').length") < 40_000


def test_the_data_in_the_page_ends_no_script(report):
    text = report.read_text()
    data = text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    assert "<" not in data
    assert json.loads(data)["trials"][0]["id"] == "trial_00000"
