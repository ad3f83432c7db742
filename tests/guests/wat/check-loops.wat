;; `check-settings` runs an endless loop.
(func $check (type $check) (loop $again (br $again)) i32.const 0)
