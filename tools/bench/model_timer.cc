// Times a model's runs on demand, so that a script can alternate them with another runtime's:
//
//   model_timer MODEL.onnx THREADS NAME=FILE ...
//
// reads numbers of runs from its input, one a line, and answers each with a line of as many pairs
// of times in seconds: of the whole run, and of its kernels alone. The first run, which compiles,
// is not among them.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "executor/program/forward_runner.h"
#include "onnx_import/importer.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/openmp_wait.h"
#include "platform/status_macros.h"
#include "tools/flags/named_files.h"

namespace weft {
namespace {

double KernelSeconds(const ForwardRunner& runner) {
  int64_t nanoseconds = 0;
  for (const NodeStatistics& node : runner.statistics()) nanoseconds += node.nanoseconds;
  return static_cast<double>(nanoseconds) / 1e9;
}

absl::Status Serve(const std::string& path, int threads, const std::vector<std::string>& texts) {
  ImportOptions options;
  options.parameters_as_variables = false;
  WEFT_ASSIGN_OR_RETURN(ImportedModel model, ImportModelFile(RealFileSystem(), path, options));
  WEFT_ASSIGN_OR_RETURN(const std::vector<NamedFile> files, ParseNamedFiles(texts, "input"));
  std::map<std::string, Value> inputs;
  for (const NamedFile& file : files) {
    const std::optional<ValueId> id = model.graph.FindValue(file.name);
    if (!id.has_value()) return absl::InvalidArgumentError("no input '" + file.name + "'");
    WEFT_ASSIGN_OR_RETURN(inputs[file.name],
                          ReadInput(RealFileSystem(), file, model.graph.value(*id), {}));
  }
  ForwardRunner::Options runner_options;
  runner_options.threads = threads;
  runner_options.statistics = true;
  ForwardRunner runner(std::move(model.graph), runner_options);
  WEFT_RETURN_IF_ERROR(runner.Run(inputs).status());
  for (int runs = 0; std::cin >> runs;) {
    for (int i = 0; i < runs; ++i) {
      const double kernels = KernelSeconds(runner);
      const int64_t start = RealClock().MonotonicNanos();
      WEFT_RETURN_IF_ERROR(runner.Run(inputs).status());
      std::printf("%.9f ", static_cast<double>(RealClock().MonotonicNanos() - start) / 1e9);
      std::printf("%.9f ", KernelSeconds(runner) - kernels);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
  weft::RestartWithOpenMpWait(arguments);
  int threads = 0;
  if (count < 3 || !absl::SimpleAtoi(arguments[2], &threads) || threads < 1) {
    std::fprintf(stderr, "usage: model_timer MODEL.onnx THREADS NAME=FILE ...\n");
    return 2;
  }
  const absl::Status status = weft::Serve(
      arguments[1], threads, std::vector<std::string>(arguments + 3, arguments + count));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
