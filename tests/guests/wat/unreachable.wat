;; Traps, as a program does that has aborted.
(func $poll (type $poll) unreachable)
