// Times a model's runs on demand, so that a script can alternate them with another runtime's:
//
//   model_timer [--outputs=FOLDER] MODEL.onnx THREADS NAME=FILE ...
//
// opens the model, runs it, and says so by a line "opened IMPORT FIRST": seconds of reading the
// file, and of the first run, which compiles. With --outputs it then writes the outputs to
// FOLDER/NAME.npy. Its input has a request a line. A number of runs is answered by a line of as
// many pairs of times in seconds: of the whole run, and of its kernels alone. "open" opens the
// model anew and is answered by such a line as the first.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "executor/program/forward_runner.h"
#include "onnx_import/importer.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/openmp_wait.h"
#include "platform/status_macros.h"
#include "tools/flags/named_files.h"
#include "tools/models/value_files.h"

namespace weft {
namespace {

double KernelSeconds(const ForwardRunner& runner) {
  int64_t nanoseconds = 0;
  for (const NodeStatistics& node : runner.statistics()) nanoseconds += node.nanoseconds;
  return static_cast<double>(nanoseconds) / 1e9;
}

double SecondsSince(int64_t begin) {
  return static_cast<double>(RealClock().MonotonicNanos() - begin) / 1e9;
}

struct Request {
  std::string model;
  int threads = 1;
  std::string outputs;  // folder, or empty
  std::vector<std::string> inputs;
};

// A model with its inputs, ready to run.
struct Opened {
  std::map<std::string, Value> inputs;
  std::unique_ptr<ForwardRunner> runner;
};

// Says how long it took; writes the outputs of the first run where a folder is given.
absl::StatusOr<Opened> Open(const Request& request) {
  Opened opened;
  ImportOptions options;
  options.parameters_as_variables = false;
  const int64_t begin = RealClock().MonotonicNanos();
  WEFT_ASSIGN_OR_RETURN(ImportedModel model,
                        ImportModelFile(RealFileSystem(), request.model, options));
  const double import_seconds = SecondsSince(begin);
  WEFT_ASSIGN_OR_RETURN(const std::vector<NamedFile> files,
                        ParseNamedFiles(request.inputs, "input"));
  for (const NamedFile& file : files) {
    const std::optional<ValueId> id = model.graph.FindValue(file.name);
    if (!id.has_value()) return absl::InvalidArgumentError("no input '" + file.name + "'");
    WEFT_ASSIGN_OR_RETURN(opened.inputs[file.name],
                          ReadInput(RealFileSystem(), file, model.graph.value(*id), {}));
  }
  ForwardRunner::Options runner_options;
  runner_options.threads = request.threads;
  runner_options.statistics = true;
  opened.runner = std::make_unique<ForwardRunner>(std::move(model.graph), runner_options);
  const int64_t first = RealClock().MonotonicNanos();
  WEFT_ASSIGN_OR_RETURN(const auto outputs, opened.runner->Run(opened.inputs));
  std::printf("opened %.9f %.9f\n", import_seconds, SecondsSince(first));
  std::fflush(stdout);
  if (!request.outputs.empty()) {
    for (const auto& [name, value] : outputs) {
      WEFT_RETURN_IF_ERROR(WriteValueFile(RealFileSystem(), request.outputs, name, value).status());
    }
  }
  return opened;
}

absl::Status TimeRuns(Opened& opened, int runs) {
  for (int i = 0; i < runs; ++i) {
    const double kernels = KernelSeconds(*opened.runner);
    const int64_t start = RealClock().MonotonicNanos();
    WEFT_RETURN_IF_ERROR(opened.runner->Run(opened.inputs).status());
    std::printf("%.9f ", SecondsSince(start));
    std::printf("%.9f ", KernelSeconds(*opened.runner) - kernels);
  }
  std::printf("\n");
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status Serve(Request request) {
  WEFT_ASSIGN_OR_RETURN(Opened opened, Open(request));
  request.outputs.clear();
  for (std::string line; std::getline(std::cin, line);) {
    int runs = 0;
    if (line == "open") {
      opened = {};  // two at once would need twice the memory
      WEFT_ASSIGN_OR_RETURN(opened, Open(request));
    } else if (absl::SimpleAtoi(line, &runs) && runs >= 0) {
      WEFT_RETURN_IF_ERROR(TimeRuns(opened, runs));
    } else {
      return absl::InvalidArgumentError("neither a number of runs nor 'open': '" + line + "'");
    }
  }
  return absl::OkStatus();
}

// Nothing where the arguments are wrong.
std::optional<Request> ParseRequest(const std::vector<std::string>& arguments) {
  Request request;
  std::vector<std::string> rest;
  for (const std::string& argument : arguments) {
    absl::string_view value = argument;
    if (absl::ConsumePrefix(&value, "--outputs=")) {
      request.outputs = std::string(value);
    } else {
      rest.push_back(argument);
    }
  }
  if (rest.size() < 2 || !absl::SimpleAtoi(rest[1], &request.threads) || request.threads < 1) {
    return std::nullopt;
  }
  request.model = rest[0];
  request.inputs.assign(rest.begin() + 2, rest.end());
  return request;
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
  weft::RestartWithOpenMpWait(arguments);
  const auto request =
      weft::ParseRequest(std::vector<std::string>(arguments + 1, arguments + count));
  if (!request.has_value()) {
    std::fprintf(stderr,
                 "usage: model_timer [--outputs=FOLDER] MODEL.onnx THREADS NAME=FILE ...\n");
    return 2;
  }
  const absl::Status status = weft::Serve(*request);
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return 1;
}
