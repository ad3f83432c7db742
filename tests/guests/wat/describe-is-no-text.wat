;; The name of its kind is no UTF-8.
(data (i32.const 8192) "\ff\fe")
