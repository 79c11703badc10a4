#include "tools/console/exit_code.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr char kPayload[] = "weft/exit_code";

}  // namespace

absl::Status WithExitCode(absl::Status status, ExitCode code) {
  if (status.ok() || status.GetPayload(kPayload).has_value()) return status;
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(static_cast<int>(code))));
  return status;
}

absl::Status UsageError(const std::string& message) {
  return WithExitCode(absl::InvalidArgumentError(message), ExitCode::kUsage);
}

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kOk;
  if (absl::IsInternal(status)) return ExitCode::kInternal;
  if (const auto payload = status.GetPayload(kPayload); payload.has_value()) {
    int code = 0;
    if (absl::SimpleAtoi(std::string(*payload), &code)) return static_cast<ExitCode>(code);
  }
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kUnimplemented:
      return ExitCode::kModel;
    case absl::StatusCode::kFailedPrecondition:
      return ExitCode::kPlan;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
      return ExitCode::kData;
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kMemory;
    case absl::StatusCode::kOutOfRange:
      return ExitCode::kNumerics;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return ExitCode::kRefused;
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kStalled;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
      return ExitCode::kTryAgain;
    default:
      return ExitCode::kInternal;
  }
}

}  // namespace weft
