;; Writes a log line that is not UTF-8.
(import "polliwog:plugin/log@0.1.0" "write" (func $write (param i32 i32 i32)))
(data (i32.const 16384) "\c3\28")
(func $poll (type $poll) (call $write (i32.const 0) (i32.const 16384) (i32.const 2)) i32.const 4096)
