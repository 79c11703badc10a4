#include "platform/openmp_wait.h"

#include <unistd.h>

#include <cstdlib>

namespace weft {

std::vector<std::pair<std::string, std::string>> OpenMpWait() {
  return {{"OMP_WAIT_POLICY", "passive"}, {"GOMP_SPINCOUNT", "10000"}};
}

void RestartWithOpenMpWait(char** arguments) {
  for (const auto& [name, value] : OpenMpWait()) {
    if (std::getenv(name.c_str()) != nullptr) return;
  }
  for (const auto& [name, value] : OpenMpWait()) setenv(name.c_str(), value.c_str(), 1);
  execv("/proc/self/exe", arguments);
  for (const auto& [name, value] : OpenMpWait()) unsetenv(name.c_str());
}

}  // namespace weft
