"""power: the possible contents of a disk after a loss of power, from the record of a run's writes and flushes. Only
flushed bytes of a file, and entries made before their folder was flushed, are certain. Any part of the rest may
exist: torn or zero bytes, single sectors, single entries; but a rename is atomic. A checkpoint must survive from the
moment when the run's log reports it saved; the run decides what to flush for that."""

import os
import re
import struct

FSYNC, FDATASYNC, RENAMEAT2, EXCHANGE = 74, 75, 316, 2  # system call numbers of x86-64
OPENS, WRITES, TRUNCATES = (2, 257), (1, 18), (77, 76)
RENAMES, MAKES, REMOVES = (82, 264, RENAMEAT2), (83, 258), (84, 87, 263)
SECTOR = 512
NEVER = 1 << 60
LOG = "saves.jsonl"  # the run's log of saves, which is not part of the disk
SAVED = re.compile(rb'"event":"save","step":(\d+)')


def read_records(path):
    """[(system call, offset or flags, path, target, data)]"""
    with open(path, "rb") as file:
        data = file.read()
    records, at = [], 0
    while at < len(data):
        number, offset, *lengths = struct.unpack_from("<5q", data, at)
        at += 40
        parts = []
        for length in lengths:
            parts.append(data[at:at + length])
            at += length
        paths = (os.path.normpath(part.decode()) for part in parts[:2])
        records.append((number, offset, *paths, parts[2]))
    return records


class Operation:
    """Bytes of a file (`inode`, `offset`, `data`; without data the file is truncated there), or `entries` of folders:
    [(folder, name, inode)]."""

    def __init__(self, time, inode=None, offset=0, data=None, entries=()):
        self.time, self.inode, self.offset, self.data, self.entries = time, inode, offset, data, entries
        self.durable = NEVER  # the time when the operation became durable
        self.waits = {folder for folder, _, _ in entries}  # folders still to be flushed


class Disk:
    """The operations of a run on files below `root`, and for each time the checkpoints that must survive."""

    def __init__(self, root, records, begin):
        self.root, self.operations, self.times = root, [], len(records)
        self.files, self.folders = {}, {0: {}}  # initial contents: bytes of files, entries of folders
        self.now = {}  # current entries as the run sees them, of all folders that ever existed
        self.sure, self.promises = set(), []
        self.inodes = iter(range(1, NEVER))
        for path, data in begin.items():
            self.plant(path.split("/"), data)
        self.now = {inode: dict(entries) for inode, entries in self.folders.items()}
        for time, record in enumerate(records):
            self.apply(time, *record)
            self.promises.append(max(self.sure, default=0))

    def plant(self, names, data):
        folder = 0
        for name in names[:-1]:
            if name not in self.folders[folder]:
                self.folders[folder][name] = inode = next(self.inodes)
                self.folders[inode] = {}
            folder = self.folders[folder][name]
        self.folders[folder][names[-1]] = inode = next(self.inodes)
        self.files[inode] = data
        step = self.step_of(names)
        if step:
            self.sure.add(step)

    @staticmethod
    def step_of(names):
        """The step of a checkpoint's folder in R; None for another path."""
        if len(names) >= 2 and names[0] == "R" and names[1].startswith("step-") and names[1][5:].isdigit():
            return int(names[1][5:])
        return None

    def find(self, path):
        """Folder, name, and inode or None; the folder is None outside the root."""
        if not path.startswith(self.root + "/"):
            return (0, "", 0) if path == self.root else (None, "", None)
        folder, names = 0, path[len(self.root) + 1:].split("/")
        for name in names[:-1]:
            folder = self.now.get(folder, {}).get(name)
        return folder, names[-1], self.now.get(folder, {}).get(names[-1])

    def change(self, time, *entries):
        for folder, name, inode in entries:
            if inode is None:
                self.now[folder].pop(name, None)
            else:
                self.now[folder][name] = inode
        self.operations.append(Operation(time, entries=entries))

    def apply(self, time, number, offset, path, target, data):
        if os.path.basename(path) == LOG:
            self.sure |= {int(step) for step in SAVED.findall(data)} if number in WRITES else set()
            return
        folder, name, inode = self.find(path)
        if folder is None:
            return
        if number in OPENS:
            if inode is None:
                self.change(time, (folder, name, next(self.inodes)))
            elif offset & os.O_TRUNC:
                self.operations.append(Operation(time, inode, 0))
        elif number in WRITES:
            self.operations.append(Operation(time, inode, offset, data))
        elif number in TRUNCATES:
            self.operations.append(Operation(time, inode, offset))
        elif number in MAKES:
            inode = next(self.inodes)
            self.now[inode] = {}
            self.change(time, (folder, name, inode))
        elif number in REMOVES:
            self.change(time, (folder, name, None))
        elif number in RENAMES:
            self.sure.discard(self.step_of(path[len(self.root) + 1:].split("/")))
            other, new, there = self.find(target)
            back = there if number == RENAMEAT2 and offset & EXCHANGE else None
            self.change(time, (folder, name, back), (other, new, inode))
        elif number in (FSYNC, FDATASYNC):
            self.flush(time, inode)

    def flush(self, time, inode):
        for operation in self.operations:
            operation.waits.discard(inode)
            if operation.durable == NEVER and (operation.inode == inode or operation.entries and not operation.waits):
                operation.durable = time

    def after_loss(self, time, draw):
        """{path: bytes}, {folder's path: None}: the disk's contents if the power fails before this call."""
        chance, ordered = draw.choice((0, 0.1, 0.5, 0.9, 1)), draw.random() < 0.5
        until = draw.randrange(time + 1) if ordered else NEVER  # entries become durable in order, as in a journal
        files, folders = dict(self.files), {inode: dict(entries) for inode, entries in self.folders.items()}
        for operation in self.operations:
            if operation.time >= time:
                break
            sure = operation.durable < time
            if operation.entries:
                if sure or (operation.time < until if ordered else draw.random() < chance):
                    for folder, name, inode in operation.entries:
                        folders.setdefault(folder, {})[name] = inode
            elif sure or draw.random() < chance:
                self.write(files, operation, None if sure else draw)
        return self.walk(files, folders)

    @staticmethod
    def write(files, operation, draw):
        there, data, offset = files.get(operation.inode, b""), operation.data, operation.offset
        if data is None:
            files[operation.inode] = there[:offset]
            return
        if draw and draw.random() < 0.3:
            torn = draw.randrange(len(data) // SECTOR + 1) * SECTOR
            data = data[:torn] + bytes(len(data) - torn if draw.random() < 0.5 else 0)
        elif draw and draw.random() < 0.5:
            data = b"".join(data[at:at + SECTOR] if draw.random() < 0.8 else bytes(len(data[at:at + SECTOR]))
                            for at in range(0, len(data), SECTOR))
        there = there.ljust(offset, b"\0")
        files[operation.inode] = there[:offset] + data + there[offset + len(data):]

    def walk(self, files, folders):
        found, waiting = {}, [("", 0)]
        while waiting:
            path, inode = waiting.pop()
            for name, below in folders.get(inode, {}).items():
                if below in self.now:
                    waiting.append((path + name + "/", below))
                    found[path + name] = None
                elif below is not None:
                    found[path + name] = files.get(below, b"")
        return found
