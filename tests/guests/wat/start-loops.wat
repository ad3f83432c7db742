;; The start function runs an endless loop, so `describe` is never called.
(func $start (loop $again (br $again)))
(start $start)
