;; `describe` traps.
(func $describe (type $describe) unreachable)
