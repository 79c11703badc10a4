#include <string>
#include <vector>

#include "ops/custom/isolation/op_helper.h"
#include "platform/openmp_wait.h"
#include "tools/command_line/command_line.h"
#include "tools/console/console.h"

int main(int argc, char** argv) {
  if (weft::IsOpHelper(argc, argv)) return weft::RunOpHelper(argv);
  weft::RestartWithOpenMpWait(argv);
  weft::Console console = weft::SystemConsole();
  return weft::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), console);
}
