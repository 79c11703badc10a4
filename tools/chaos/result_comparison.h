// Compares what two runs of a job have come to.
#ifndef WEFT_TOOLS_CHAOS_RESULT_COMPARISON_H_
#define WEFT_TOOLS_CHAOS_RESULT_COMPARISON_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/file_system.h"

namespace weft {

// What a run that nobody disturbs comes to, as far as it is known.
struct ExpectedResult {
  std::string model;                      // file; "": not known
  std::string sha256;                     // of the file; "": not known
  std::map<int64_t, std::string> losses;  // by step, as the metrics have them
  std::optional<double> final_loss = std::nullopt;
};

// 64 hexadecimal digits, or a number: the SHA-256 of the model or the loss of the last step.
// InvalidArgument showing the text.
absl::StatusOr<ExpectedResult> ParseExpectedResult(const std::string& text);

// The SHA-256 of a file, with 64 hexadecimal digits.
absl::StatusOr<std::string> Sha256OfFile(FileSystem& files, const std::string& path);

// The result of a run that is looked at.
struct ChaosResult {
  std::string model;  // file
  std::string sha256;
  std::map<int64_t, std::string> losses;
};

// How exact they must be. Bits: SHA-256, each weight and each loss as written. Else each number to
// `tolerance`, absolute and relative.
struct Exactness {
  bool bits = false;
  double tolerance = 1e-5;
};

// What differs, a line each; empty: nothing does. Only what is known of `expected` is compared, and
// losses of steps that both have told.
std::vector<std::string> CompareResults(FileSystem& files, const ExpectedResult& expected,
                                        const ChaosResult& result, const Exactness& exactness);

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_RESULT_COMPARISON_H_
