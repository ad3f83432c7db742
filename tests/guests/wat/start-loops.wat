;; Its start function never ends: nothing of it can even be asked who it is.
(func $start (loop $again (br $again)))
(start $start)
