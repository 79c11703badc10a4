#include "tools/chaos/result_comparison.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/importer.h"
#include "platform/status_macros.h"
#include "tensor/tensor.h"
#include "tensor/value.h"
#include "tools/reports/value_comparison.h"
#include "tools/signing/sha256.h"

namespace weft {
namespace {

bool AreNear(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::abs(a - b) <= tolerance * (1 + std::abs(b));
}

// Whether two losses as they are written are equal enough.
bool AreSameLoss(const std::string& a, const std::string& b, const Exactness& exactness) {
  if (a == b) return true;
  double first = 0;
  double second = 0;
  return !exactness.bits && absl::SimpleAtod(a, &first) && absl::SimpleAtod(b, &second) &&
         AreNear(first, second, exactness.tolerance);
}

// The first tensor of two models that differs; "": none does.
absl::StatusOr<std::string> DifferentWeights(FileSystem& files, const std::string& expected,
                                             const std::string& result,
                                             const Exactness& exactness) {
  WEFT_ASSIGN_OR_RETURN(const ImportedModel truth, ImportModelFile(files, expected));
  WEFT_ASSIGN_OR_RETURN(const ImportedModel model, ImportModelFile(files, result));
  std::map<std::string, Tensor> values;
  for (const Variable& variable : model.graph.variables()) values[variable.name] = variable.initial;
  if (values.size() != truth.graph.variables().size())
    return std::string("they have other tensors");
  for (const Variable& variable : truth.graph.variables()) {
    const auto found = values.find(variable.name);
    if (found == values.end()) return absl::StrCat("'", variable.name, "' is missing");
    const Tensor& value = found->second;
    if (!variable.initial.valid() || !value.valid()) continue;
    if (exactness.bits) {
      if (!BitwiseEqual(value, variable.initial)) return absl::StrCat("'", variable.name, "'");
      continue;
    }
    const std::string difference =
        DescribeDifference(Value(value), Value(variable.initial),
                           {.relative = exactness.tolerance, .absolute = exactness.tolerance});
    if (!difference.empty()) return absl::StrCat("'", variable.name, "': ", difference);
  }
  return std::string();
}

}  // namespace

absl::StatusOr<ExpectedResult> ParseExpectedResult(const std::string& text) {
  constexpr size_t kDigits = 64;
  ExpectedResult expected;
  if (text.size() == kDigits && std::all_of(text.begin(), text.end(), absl::ascii_isxdigit)) {
    expected.sha256 = absl::AsciiStrToLower(text);
    return expected;
  }
  double loss = 0;
  if (!absl::SimpleAtod(text, &loss)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is neither a SHA-256 of 64 hexadecimal digits nor a loss"));
  }
  expected.final_loss = loss;
  return expected;
}

absl::StatusOr<std::string> Sha256OfFile(FileSystem& files, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const auto file, files.MapFile(path));
  return Sha256Hex(file->bytes());
}

std::vector<std::string> CompareResults(FileSystem& files, const ExpectedResult& expected,
                                        const ChaosResult& result, const Exactness& exactness) {
  std::vector<std::string> different;
  if (exactness.bits && !expected.sha256.empty() && expected.sha256 != result.sha256) {
    different.push_back(
        absl::StrCat("the model has SHA-256 ", result.sha256, " instead of ", expected.sha256));
  }
  if (!expected.model.empty()) {
    const auto weights = DifferentWeights(files, expected.model, result.model, exactness);
    if (!weights.ok()) {
      different.push_back(
          absl::StrCat("the models cannot be read: ", std::string(weights.status().message())));
    } else if (!weights->empty()) {
      different.push_back(absl::StrCat("the weights differ: ", *weights));
    }
  }
  for (const auto& [step, loss] : result.losses) {
    const auto found = expected.losses.find(step);
    if (found == expected.losses.end() || AreSameLoss(loss, found->second, exactness)) continue;
    different.push_back(
        absl::StrCat("the loss of step ", step, " is ", loss, " instead of ", found->second));
    break;
  }
  if (expected.final_loss.has_value()) {
    double last = 0;
    if (result.losses.empty() || !absl::SimpleAtod(result.losses.rbegin()->second, &last) ||
        !AreNear(last, *expected.final_loss, exactness.tolerance)) {
      different.push_back(absl::StrCat(
          "the last loss is ", result.losses.empty() ? "not told" : result.losses.rbegin()->second,
          " instead of ", *expected.final_loss));
    }
  }
  return different;
}

}  // namespace weft
