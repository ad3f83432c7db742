;; The start function traps.
(func $start unreachable)
(start $start)
