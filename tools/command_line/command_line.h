// From arguments to a command's result.
#ifndef WEFT_TOOLS_COMMAND_LINE_COMMAND_LINE_H_
#define WEFT_TOOLS_COMMAND_LINE_COMMAND_LINE_H_

#include <memory>
#include <string>
#include <vector>

#include "tools/commands/command.h"
#include "tools/console/console.h"

namespace weft {

// Every command, in the order of the overview.
std::vector<std::unique_ptr<Command>> AllCommands();

// Runs what `arguments` (without the program's name) say and returns the exit code. Errors are one
// paragraph on console.err: "error: ...".
int RunCommandLine(const std::vector<std::string>& arguments, Console& console);

}  // namespace weft

#endif  // WEFT_TOOLS_COMMAND_LINE_COMMAND_LINE_H_
