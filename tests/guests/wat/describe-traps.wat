;; Asking it who it is ends in a trap.
(func $describe (type $describe) unreachable)
