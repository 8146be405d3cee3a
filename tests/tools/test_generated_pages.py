"""The generated pages of docs/reference are current, and the diagram of moves is right."""

from __future__ import annotations

from holdfast.lifecycle import MOVES, RULES, Move, Status
from tools import docs


class TestGeneratedPages:
    def test_a_stale_page_fails_the_check_and_writing_mends_it(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(docs, "FOLDER", tmp_path)
        assert docs.main(["--check"]) == 1
        assert docs.main([]) == 0
        assert docs.main(["--check"]) == 0
        (tmp_path / "moves.md").write_text("edited by hand")
        assert docs.main(["--check"]) == 1
        assert "stale: moves.md" in capsys.readouterr().out

    def test_no_arrow_but_claim_leads_to_a_lease(self):
        giving = {rule.move for rule in MOVES for a, b in docs.edges(rule) if a != b and b is Status.LEASED}
        assert giving == {Move.CLAIM}

    def test_every_move_has_its_arrow_from_each_source_to_each_target(self):
        for rule in MOVES:
            pairs = set(docs.edges(rule))
            assert {a for a, _ in pairs} == (rule.sources or {"[*]"})
            assert {b for _, b in pairs} == rule.targets

    def test_a_move_that_keeps_the_status_draws_no_arrow(self):
        """`restore` shows a run as it was: no arrow leads from one status to another."""
        assert all(a == b for a, b in docs.edges(RULES[Move.RESTORE]))
        assert not any(Move.RESTORE in moves for moves in docs.arrows().values())
        for pair in ((Status.PENDING, Status.SUCCEEDED), (Status.SUCCEEDED, Status.PENDING)):
            assert pair not in docs.arrows()
