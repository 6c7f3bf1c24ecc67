import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from harness.load.journal import MAGIC, Entry, JournalWriter, Kind, read_entries

ENTRY = st.builds(
    Entry,
    st.sampled_from([int(kind) for kind in Kind]),
    st.integers(0, 2**32 - 1),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False),
    st.binary(max_size=60),
)


def written(path: Path, entries: list[Entry]) -> bytes:
    journal = JournalWriter(path)
    for entry in entries:
        journal.append(*entry)
    journal.close()
    return path.read_bytes()


@given(st.lists(ENTRY, min_size=1, max_size=20))
def test_entries_come_back_as_they_were_written(entries: list[Entry]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.bin"
        written(path, entries)
        assert list(read_entries(path)) == entries


@given(st.lists(ENTRY, min_size=1, max_size=5), st.data())
def test_a_journal_cut_anywhere_gives_the_whole_entries_before_the_cut(
    entries: list[Entry], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.bin"
        content = written(path, entries)
        ends = [len(MAGIC)]
        for entry in entries:
            ends.append(ends[-1] + 25 + len(entry.payload))
        assert ends[-1] == len(content)
        cut = data.draw(st.integers(0, len(content)))
        path.write_bytes(content[:cut])
        whole = sum(end <= cut for end in ends[1:])
        assert list(read_entries(path)) == entries[:whole]
