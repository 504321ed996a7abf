"""Protected aliases stay on versions that passed."""

from __future__ import annotations

from mlflow import MlflowClient

from tests.guarding.conftest import SOON, Configure, GuardHere, Model, TinyGate, until


def test_an_alias_that_is_moved_by_hand(
    tracking: MlflowClient,
    model: Model,
    other_model: Model,
    configure: Configure,
    guard_here: GuardHere,
    tiny_gate: TinyGate,
) -> None:
    passed, later, failed, new = map(model.version, ("passed", "passed", "failed", "new"))
    never = other_model.version()
    path = configure(model, other_model, gate_on="alias:nobody", reconcile_seconds=2)

    def stands(guard: object) -> str | None:
        told = guard.status()["models"][model.name]["protect"]  # type: ignore[attr-defined]
        return told["champion"]

    with guard_here(path, tiny_gate.command()) as guard:
        # To a version that passed: left alone, the first time and the second.
        for version in (later, passed):
            model.point("champion", version)
            until(lambda: stands(guard) == version, seconds=SOON)  # noqa: B023
            assert model.alias() == version
            assert "biasbios.guard" not in model.tags(version)

        # To one that did not: back to where it stood last, not to the newest that passed.
        for version, why in ((failed, "failed the gate"), (new, "was never gated")):
            model.point("champion", version)
            until(lambda: model.alias() == passed, seconds=SOON)
            said = model.tags(version)["biasbios.guard"]
            assert f"champion moved back to version {passed}: version {version} {why}" in said

        # Other aliases are nobody's business.
        model.point("shadow", failed)

        # Deleted: told, not set anew, by no event and by no look.
        tracking.delete_registered_model_alias(model.name, "champion")
        until(lambda: stands(guard) is None, seconds=SOON)
        told = guard.status()["models"][model.name]["told"]
        assert told[0]["what"] == (
            f"champion was deleted from version {passed}; it is not set anew"
        )
        looked = guard.status()["models"][model.name]["looked_at"]
        until(lambda: guard.status()["models"][model.name]["looked_at"] != looked, seconds=SOON)
        assert model.alias() is None
        assert model.alias("shadow") == failed

        # Where no version passed, it is taken off.
        other_model.point("champion", never)
        until(lambda: other_model.alias() is None, seconds=SOON)
        assert "champion taken off" in other_model.tags(never)["biasbios.guard"]
        # Its own work is no news.
        assert not any(
            "deleted" in told["what"] for told in guard.status()["models"][other_model.name]["told"]
        )

    # Moved while nobody was looking.
    model.point("champion", failed)
    with guard_here(path, tiny_gate.command()):
        until(lambda: model.alias() == passed, seconds=SOON)
    assert tiny_gate.noted() == []
    assert tracking.get_registered_model(model.name).tags == {}


def test_a_verdict_that_changes(
    tracking: MlflowClient,
    model: Model,
    configure: Configure,
    guard_here: GuardHere,
    tiny_gate: TinyGate,
) -> None:
    first, second = model.version("passed"), model.version("passed")
    with guard_here(configure(model), tiny_gate.command()) as guard:

        def told() -> str:
            return " ".join(t["what"] for t in guard.status()["models"][model.name]["told"])

        for version in (first, second):
            model.point("champion", version)
            until(lambda: f"stands at version {version}" in told())  # noqa: B023
        # A gate that could not run says nothing against a version that passed.
        tracking.set_model_version_tag(model.name, second, "biasbios.gate", "error")
        until(lambda: "which passed once and now could not be gated" in told())
        assert model.alias() == second
        # One that failed does.
        tracking.set_model_version_tag(model.name, second, "biasbios.gate", "failed")
        until(lambda: model.alias() == first, seconds=SOON)
