"""The course of the demo: who hands in what, and what must come of it.

Guarantees: everything expected here is written by hand, from the rules of judging and scoring and
with none of the project's own code, so that agreement with the service means something. Pure data.

The late penalty is `score=score*(0.8**(overtime+1))`: what a late submission gains over the
student's best on-time score counts for 80 % on the first day, and for less on each day after.
"""

from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"

C, CPP, PYTHON = 0, 1, 2
_LANGUAGES = {".c": C, ".cpp": CPP, ".py": PYTHON}

HOMEWORK_ID = "demo-course"
HOMEWORK_NAME = "First steps"
PENALTY = "score=score*(0.8**(overtime+1))"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem package of the examples and the id it is imported under."""

    problem_id: int
    folder: str
    task_scores: tuple[int, ...]
    allow_default_comparison: bool = False

    @property
    def path(self) -> Path:
        """The package's folder."""
        return EXAMPLES / "problems" / self.folder


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One program of one student, and the verdict and the scores (in points) it must get."""

    submission_id: str
    student: str
    problem: Problem
    program: str
    verdict: str
    task_scores: tuple[int, ...]
    late: bool = False

    @property
    def path(self) -> Path:
        """The program's file."""
        return EXAMPLES / "programs" / self.problem.folder / self.program

    @property
    def language(self) -> int:
        """The language as the service numbers it: 0 C, 1 C++, 2 Python."""
        return _LANGUAGES[self.path.suffix]

    @property
    def score(self) -> int:
        """The points of the whole submission."""
        return sum(self.task_scores)


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What `GET /users/<name>` must say."""

    submission: int
    ac_submission: int
    ac_problem_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What the homework must say of one student and one problem; `status` is a verdict's code."""

    score: int
    raw_score: int
    status: int
    submission_ids: tuple[str, ...]


HELLO = Problem(problem_id=1, folder="hello", task_scores=(100,))
ODDECHO = Problem(problem_id=2, folder="oddecho", task_scores=(50, 50))
DIFFERENT = Problem(
    problem_id=3, folder="different", task_scores=(100,), allow_default_comparison=True
)
PROBLEMS = (HELLO, ODDECHO, DIFFERENT)

# The last has a dot: names may hold any character, also those with a meaning in the database.
STUDENTS = ("ada", "grace", "linus", "barbara", "dennis.r")


def _row(
    submission_id: str,
    problem: Problem,
    program: str,
    verdict: str,
    *task_scores: int,
    late: bool = False,
) -> Submission:
    student = submission_id.split("-")[0]
    return Submission(
        submission_id=submission_id,
        student="dennis.r" if student == "dennis" else student,
        problem=problem,
        program=program,
        verdict=verdict,
        task_scores=task_scores,
        late=late,
    )


# In the order they are handed in. One student's programs for one problem are kept apart, so that
# no two of them can bear the same millisecond.
SUBMISSIONS = (
    _row("ada-hello-1", HELLO, "ac.c", "AC", 100),
    _row("grace-hello-1", HELLO, "ce_no_semicolon.c", "CE", 0),
    _row("grace-different-1", DIFFERENT, "tle_counting.c", "TLE", 0),
    _row("linus-hello-1", HELLO, "ac.py", "AC", 100),
    _row("barbara-hello-1", HELLO, "ole_flood.c", "OLE", 0),
    _row("dennis-hello-1", HELLO, "ce_indent.py", "CE", 0),
    _row("ada-oddecho-1", ODDECHO, "ac.cpp", "AC", 50, 50),
    _row("grace-oddecho-1", ODDECHO, "partial_five_words.cpp", "WA", 50, 0),
    _row("linus-oddecho-1", ODDECHO, "partial_index_error.py", "RE", 50, 0),
    _row("barbara-oddecho-1", ODDECHO, "ce_no_such_type.cpp", "CE", 0, 0),
    _row("dennis-oddecho-1", ODDECHO, "re_abort.c", "RE", 0, 0),
    _row("ada-different-1", DIFFERENT, "ac.c", "AC", 100),
    _row("linus-different-1", DIFFERENT, "wa_no_abs.cpp", "WA", 0),
    _row("barbara-different-1", DIFFERENT, "mle_list.py", "MLE", 0),
    _row("dennis-different-1", DIFFERENT, "wa_int.c", "WA", 0),
    _row("grace-hello-2", HELLO, "wa_case.c", "WA", 0),
    _row("linus-hello-2", HELLO, "re_null.c", "RE", 0),
    _row("barbara-hello-2", HELLO, "tle_sleep.py", "TLE", 0),
    _row("dennis-hello-2", HELLO, "re_exit_code.cpp", "RE", 0),
    _row("grace-different-2", DIFFERENT, "re_exception.py", "RE", 0),
    _row("linus-oddecho-2", ODDECHO, "wa_even_words.py", "WA", 0, 0),
    _row("barbara-oddecho-2", ODDECHO, "ac.c", "AC", 50, 50),
    _row("dennis-different-2", DIFFERENT, "re_abort.cpp", "RE", 0),
    _row("grace-hello-3", HELLO, "ac.cpp", "AC", 100),
    _row("barbara-hello-3", HELLO, "tle_loop.cpp", "TLE", 0),
    _row("barbara-different-2", DIFFERENT, "ole_triangle.py", "OLE", 0),
    _row("dennis-different-3", DIFFERENT, "ac.cpp", "AC", 100),
    _row("barbara-hello-4", HELLO, "mle_fill.c", "MLE", 0),
    # After the deadline.
    _row("grace-oddecho-2", ODDECHO, "ac.py", "AC", 50, 50, late=True),
    _row("linus-different-2", DIFFERENT, "ac.py", "AC", 100, late=True),
    _row("barbara-hello-5", HELLO, "wa_silent.py", "WA", 0, late=True),
    _row("dennis-hello-3", HELLO, "ac.py", "AC", 100, late=True),
    _row("dennis-oddecho-2", ODDECHO, "partial_five_words.cpp", "WA", 50, 0, late=True),
    _row("dennis-different-4", DIFFERENT, "ac.py", "AC", 100, late=True),
)

# Its runner is killed while it holds this one's job: three cases of full time limit leave seconds
# to do it in.
KILLED = SUBMISSIONS[2]

COUNTERS = {
    "ada": Counters(submission=3, ac_submission=3, ac_problem_ids=(1, 2, 3)),
    "grace": Counters(submission=7, ac_submission=2, ac_problem_ids=(1, 2)),
    "linus": Counters(submission=6, ac_submission=2, ac_problem_ids=(1, 3)),
    "barbara": Counters(submission=9, ac_submission=1, ac_problem_ids=(2,)),
    "dennis.r": Counters(submission=9, ac_submission=3, ac_problem_ids=(1, 3)),
}


def _standing(score: int, raw_score: int, status: int, *submission_ids: str) -> Standing:
    return Standing(score=score, raw_score=raw_score, status=status, submission_ids=submission_ids)


# Student to problem id to standing. Codes: AC 0, WA 1, CE 2, TLE 3, MLE 4, RE 5, OLE 7.
STANDINGS = {
    "ada": {
        1: _standing(100, 100, 0, "ada-hello-1"),
        2: _standing(100, 100, 0, "ada-oddecho-1"),
        3: _standing(100, 100, 0, "ada-different-1"),
    },
    "grace": {
        1: _standing(100, 100, 0, "grace-hello-1", "grace-hello-2", "grace-hello-3"),
        # 50 on time; the late one gains 50, of which 40 count.
        2: _standing(90, 100, 0, "grace-oddecho-1", "grace-oddecho-2"),
        3: _standing(0, 0, 5, "grace-different-1", "grace-different-2"),
    },
    "linus": {
        # A worse program after the accepted one takes nothing away.
        1: _standing(100, 100, 0, "linus-hello-1", "linus-hello-2"),
        2: _standing(50, 50, 5, "linus-oddecho-1", "linus-oddecho-2"),
        3: _standing(80, 100, 0, "linus-different-1", "linus-different-2"),
    },
    "barbara": {
        # Late and without gain: the last on-time status stays.
        1: _standing(
            0,
            0,
            4,
            "barbara-hello-1",
            "barbara-hello-2",
            "barbara-hello-3",
            "barbara-hello-4",
            "barbara-hello-5",
        ),
        2: _standing(100, 100, 0, "barbara-oddecho-1", "barbara-oddecho-2"),
        3: _standing(0, 0, 7, "barbara-different-1", "barbara-different-2"),
    },
    "dennis.r": {
        1: _standing(80, 100, 0, "dennis-hello-1", "dennis-hello-2", "dennis-hello-3"),
        # The late one gains the 50 of the first group, of which 40 count.
        2: _standing(40, 50, 1, "dennis-oddecho-1", "dennis-oddecho-2"),
        3: _standing(
            100,
            100,
            0,
            "dennis-different-1",
            "dennis-different-2",
            "dennis-different-3",
            "dennis-different-4",
        ),
    },
}
