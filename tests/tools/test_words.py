"""`./hf check words` finds words that are not plain, crowded folders and long subjects of commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tools.calls import ROOT
from tools import check, words


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def write(root: Path, name: str, text: str = "") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


class TestPronouns:
    @pytest.mark.parametrize("word", ["he", "His", "him", "himself", "HE"])
    def test_each_is_found_with_its_line(self, tree, word):
        path = write(tree, "docs/page.md", f"fine\nthe worker that {word} knows\n")
        [found] = words.pronouns(tree, [path])
        assert found.startswith(f"docs/page.md:2: says {word!r}: ")

    @pytest.mark.parametrize(
        "name", ["src/a.py", "tests/a.py", "verify/a.sql", "bench/a.md", "README.md", "CONTRIBUTING.md"]
    )
    def test_they_are_found_in_code_and_pages(self, tree, name):
        assert list(words.pronouns(tree, [write(tree, name, "his")]))

    def test_they_are_found_in_the_name_of_a_test(self, tree):
        path = write(tree, "tests/test_a.py", "def test_a_worker_keeps_his_lease(): ...")
        assert len(list(words.pronouns(tree, [path]))) == 1

    @pytest.mark.parametrize("text", ["the", "this history", "she", "hex 0xhe1"])
    def test_other_words_pass(self, tree, text):
        assert list(words.pronouns(tree, [write(tree, "src/a.sql", text)])) == []

    def test_files_elsewhere_and_files_that_quote_the_words_pass(self, tree):
        paths = [write(tree, name, "he") for name in ("CHANGELOG.md", "srcs/a.py", "tools/words.py")]
        assert list(words.pronouns(tree, paths)) == []


class TestRiddles:
    def found(self, root: Path, text: str, name: str = "src/a.py") -> list[str]:
        return list(words.riddles(root, [write(root, name, text)]))

    @pytest.mark.parametrize("word", ["What", "Who", "Where", "Of", "Whose", "Whoever"])
    def test_a_docstring_that_begins_with_one_is_found(self, tree, word):
        [found] = self.found(tree, f'"""{word} is busy."""\n')
        assert found == f"src/a.py:1: the docstring begins with {word!r}: begin with a noun or a verb"

    @pytest.mark.parametrize(
        "code",
        [
            'class A:\n    """What it is."""',
            'def a():\n    """\n    What it is."""',
            'class A:\n    async def a():\n        """What it is."""',
            '"""Module."""\n\n# What it is.\na = 1',
            '"""Module."""\na = 1\nb = 2  # What it is.',
        ],
    )
    def test_each_kind_of_docstring_and_comment_is_read(self, tree, code):
        assert len(self.found(tree, code)) == 1

    def test_only_the_first_line_of_a_comment_counts(self, tree):
        assert self.found(tree, "# The lock order decides\n# What breaks otherwise.\na = 1\n") == []
        [found] = self.found(tree, "# One comment.\n\n# What the next one says.\n")
        assert found.startswith("src/a.py:3: ")

    def test_a_comment_behind_code_is_no_part_of_the_one_above(self, tree):
        [found] = self.found(tree, "a = 1  # a limit\n# What it is.\n")
        assert found.startswith("src/a.py:2: ")

    @pytest.mark.parametrize(
        "code",
        [
            '"""Whatever happens, one answer."""',
            '"""Offers of a worker."""',
            'a = "What is it?"\n# Answers of the store.',
            'a = """\n# What is this?\n"""',
        ],
    )
    def test_other_words_and_other_texts_pass(self, tree, code):
        assert self.found(tree, code) == []

    def test_comment_lines_of_sql_are_read(self, tree):
        sql = "-- :name\nselect 1;\n\n-- What is due.\n-- Where it is.\nselect 2 -- of them\n"
        [found] = self.found(tree, sql, "src/a.sql")
        assert found.startswith("src/a.sql:4: the comment begins with 'What'")

    def test_pages_may_ask_questions(self, tree):
        assert self.found(tree, "What is a lease?", "docs/a.md") == []

    def test_published_schema_files_stay_as_they_are(self, tree):
        assert self.found(tree, "-- What is due.", "src/holdfast/stores/sqlite/schema/0001.sql") == []


class TestFolders:
    def found(self, root: Path, folder: str, modules: int, suffix: str = ".py") -> list[str]:
        paths = [write(root, f"{folder}/m{number}{suffix}") for number in range(modules)]
        return list(words.folders(root, [*paths, write(root, f"{folder}/__init__.py")]))

    def test_25_modules_pass(self, tree):
        assert self.found(tree, "tests/engine", 25) == []

    @pytest.mark.parametrize("suffix", [".py", ".sql"])
    def test_26_are_found(self, tree, suffix):
        [found] = self.found(tree, "src/holdfast/engine", 26, suffix)
        assert found.startswith(f"src/holdfast/engine:1: has 26 {suffix} files, at most 25: ")

    def test_python_and_sql_count_separately(self, tree):
        paths = [write(tree, f"src/m{number}{suffix}") for number in range(20) for suffix in (".py", ".sql")]
        assert list(words.folders(tree, paths)) == []

    def test_modules_of_inner_folders_count_there(self, tree):
        paths = [write(tree, f"src/{folder}/m{number}.py") for number in range(20) for folder in ("a", "a/b")]
        assert list(words.folders(tree, paths)) == []

    def test_the_contract_suite_and_pages_may_have_more(self, tree):
        assert self.found(tree, "src/holdfast/testing/contract", 40) == []
        assert list(words.folders(tree, [write(tree, f"docs/{number}.py") for number in range(40)])) == []


class TestSubjects:
    @pytest.fixture
    def repository(self, tree: Path) -> Path:
        self.git(tree, "init", "--quiet")
        return tree

    def git(self, root: Path, *arguments: str) -> str:
        who = ["-c", "user.name=tests", "-c", "user.email=tests@localhost", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(root), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, root: Path, subject: str) -> str:
        self.git(root, "commit", "--quiet", "--allow-empty", "--cleanup=verbatim", "-m", subject)
        return self.git(root, "rev-parse", "HEAD")

    def test_a_long_subject_after_the_named_commit_is_found(self, repository):
        since = self.commit(repository, "x" * 100)
        self.commit(repository, "y" * 72)
        self.commit(repository, "z" * 73)
        [found] = words.subjects(repository, since)
        assert "the subject has 73 characters, at most 72: " in found
        assert self.git(repository, "rev-parse", "--short", "HEAD") in found

    def test_a_long_body_passes(self, repository):
        since = self.commit(repository, "Begin")
        self.commit(repository, "Bound claims by bytes\n\n" + "why " * 100)
        assert list(words.subjects(repository, since)) == []

    def test_in_a_shallow_clone_without_that_commit_all_are_checked(self, repository, tmp_path_factory):
        since = self.commit(repository, "Begin")
        for number in range(3):
            self.commit(repository, f"{number}" * 80)
        clone = tmp_path_factory.mktemp("clone").resolve()
        self.git(clone, "clone", "--quiet", "--depth=2", repository.as_uri(), "shallow")
        assert len(list(words.subjects(clone / "shallow", since))) == 2

    def test_another_history_is_not_checked_and_says_so(self, repository):
        self.commit(repository, "x" * 100)
        [said] = words.subjects(repository, words.SUBJECTS_SINCE)
        assert said.startswith("hint: subjects of commits were not checked: ")

    def test_an_archive_without_git_is_not_checked_and_says_so(self, tree):
        [said] = words.subjects(tree, words.SUBJECTS_SINCE)
        assert said.endswith("this folder is no git repository")

    def test_an_archive_inside_another_repository_is_not_checked(self, repository):
        since = self.commit(repository, "Begin")
        self.commit(repository, "x" * 100)
        inner = write(repository, "unpacked/README.md").parent
        [said] = words.subjects(inner, since)
        assert said.startswith("hint: ")

    def test_without_the_program_git_it_says_so(self, repository, monkeypatch):
        monkeypatch.setenv("PATH", str(repository))
        [said] = words.subjects(repository, words.SUBJECTS_SINCE)
        assert said.startswith("hint: ")


class TestTheCheck:
    def test_it_runs_every_rule_and_fails(self, tree, monkeypatch, capsys):
        write(tree, "README.md", "he\n")
        write(tree, "src/a.py", "# What it is.\n")
        for number in range(26):
            write(tree, f"tests/m{number}.py")
        monkeypatch.setattr(words, "ROOT", tree)
        assert words.main() == 1
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(":")[0] for line in lines] == ["README.md", "src/a.py", "tests", "hint"]

    def test_a_tree_in_plain_words_passes(self, tree, monkeypatch):
        write(tree, "README.md", "They write workflows.\n")
        monkeypatch.setattr(words, "ROOT", tree)
        assert words.main() == 0

    @pytest.mark.parametrize("name", [*words.ALLOWED, *words.MANY_MODULES])
    def test_every_exception_exists(self, name):
        assert (ROOT / name).exists()

    def test_it_is_a_check_of_hf(self):
        assert "words" in check.checks()
