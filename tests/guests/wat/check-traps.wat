;; `check-settings` traps.
(func $check (type $check) unreachable)
