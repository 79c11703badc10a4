# The commands of a page of documentation, for tests that run them as they are written.

# commands_of PAGE FIRST LAST: what the code blocks between two headings hold, of the blocks that begin with a command.
commands_of() {
  awk -v from="$2" -v to="$3" 'index($0, from) == 1 { on = 1 } to != "" && index($0, to) == 1 { on = 0 }
     /^```/ { if (code) code = 0; else { code = 1; block++; first = 1 } next }
     on && code { if (first && $0 !~ /^(export|graph_runner|c\+\+)/) skip = block; first = 0
                  if (skip != block) print }' "$1"
}
