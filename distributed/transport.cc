#include "distributed/transport.h"

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

absl::Status Differs(const char* what, RankId peer, const MessageHeader& expected,
                     const std::string& expected_value, const std::string& actual_value) {
  return absl::DataLossError(absl::StrCat(
      "message from rank ", peer.value, " on stream ", expected.stream, " does not fit: ", what,
      " is ", actual_value, ", expected ", expected_value, " (step ", expected.step,
      ", micro-batch ", expected.micro_batch, ", message ", expected.sequence, ")"));
}

}  // namespace

absl::Status CheckHeader(RankId peer, const MessageHeader& expected, const MessageHeader& actual) {
  const auto differs = [&](const char* what, auto want, auto got) {
    return Differs(what, peer, expected, absl::StrCat(want), absl::StrCat(got));
  };
  if (actual.job_id != expected.job_id) return differs("job_id", expected.job_id, actual.job_id);
  if (actual.stream != expected.stream) return differs("stream", expected.stream, actual.stream);
  if (actual.sequence != expected.sequence) {
    return differs("sequence number", expected.sequence, actual.sequence);
  }
  if (actual.step != expected.step) return differs("step", expected.step, actual.step);
  if (actual.micro_batch != expected.micro_batch) {
    return differs("micro-batch", expected.micro_batch, actual.micro_batch);
  }
  if (actual.dtype != expected.dtype) {
    return differs("element type", std::string(DTypeName(expected.dtype)),
                   std::string(DTypeName(actual.dtype)));
  }
  if (actual.elements != expected.elements) {
    return differs("element count", expected.elements, actual.elements);
  }
  if (actual.bytes != expected.bytes) return differs("size", expected.bytes, actual.bytes);
  return absl::OkStatus();
}

}  // namespace weft
