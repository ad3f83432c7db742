;; Traps like a program that aborted.
(func $poll (type $poll) unreachable)
