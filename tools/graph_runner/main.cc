#include <string>
#include <vector>

#include "tools/graph_runner/command_line.h"
#include "tools/graph_runner/console.h"

int main(int argc, char** argv) {
  weft::Console console = weft::SystemConsole();
  return weft::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), console);
}
