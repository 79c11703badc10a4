// Runs a fuzz target over files instead of over what a fuzzer invents: the corpus as a regression
// test, with every compiler. An empty input is always among them.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "platform/file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int count, char** arguments) {
  LLVMFuzzerTestOneInput(nullptr, 0);
  for (int i = 1; i < count; ++i) {
    const absl::StatusOr<std::string> input = weft::RealFileSystem().ReadFile(arguments[i]);
    if (!input.ok()) {
      std::fprintf(stderr, "%s\n", input.status().ToString().c_str());
      return 1;
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input->data()), input->size());
  }
  std::printf("%d inputs replayed\n", count);
  return 0;
}
