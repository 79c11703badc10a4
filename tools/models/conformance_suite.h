// ONNX's test folders: model.onnx beside test_data_set_K/{input_I,output_I}.pb.
#ifndef WEFT_TOOLS_MODELS_CONFORMANCE_SUITE_H_
#define WEFT_TOOLS_MODELS_CONFORMANCE_SUITE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "platform/file_system.h"
#include "tensor/device.h"
#include "tensor/value.h"
#include "tools/reports/value_comparison.h"

namespace weft {

// One folder with a model and its expected outputs.
struct ConformanceCase {
  std::string name;
  std::string op;      // what the case is about; "" when not known
  std::string model;   // path of the ONNX file
  std::string folder;  // that holds the test_data_set_K
  // Outputs need the expected shape and type only: what a generator of random numbers drew.
  bool types_only = false;
};

// The result of a case.
enum class Outcome { kPassed, kFailed, kSkipped };
std::string_view OutcomeName(Outcome outcome);  // "passed", ...

// A case with its result and a message for people.
struct ConformanceResult {
  Outcome outcome = Outcome::kPassed;
  std::string message;  // why it failed or was skipped
};

// Every folder with a model.onnx, at any depth below `folder` or itself, in name order; the name is
// the path below `folder`. NotFound when there is no such folder.
absl::StatusOr<std::vector<ConformanceCase>> FindConformanceCases(const std::string& folder);

// The rows of a table with the columns `path` (of the test folder, from the table's own) and `op`,
// as many as have one of `ops` (empty: all). InvalidArgument naming file and line.
absl::StatusOr<std::vector<ConformanceCase>> ReadConformanceTable(
    FileSystem& files, const std::string& path, const std::vector<std::string>& ops);

// The inputs of `graph` from input_0.pb, input_1.pb, ... of a test_data_set_K; an optional that has
// no file is left empty.
absl::StatusOr<std::map<std::string, Value>> ReadCaseInputs(FileSystem& files, const Graph& graph,
                                                            const std::string& folder);

// Runs every data set of the case on the device, which it borrows. What cannot be imported or run
// has failed. Skipped is a case without data, and on another device than the CPU one that needs
// what is unimplemented there.
ConformanceResult RunConformanceCase(FileSystem& files, const ConformanceCase& conformance_case,
                                     const Tolerance& tolerance, Device& device = CpuDevice());

}  // namespace weft

#endif  // WEFT_TOOLS_MODELS_CONFORMANCE_SUITE_H_
