;; The kind is not UTF-8.
(data (i32.const 8192) "\ff\fe")
