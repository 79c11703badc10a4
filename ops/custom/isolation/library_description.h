// What an op library declares, as bytes.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_LIBRARY_DESCRIPTION_H_
#define WEFT_OPS_CUSTOM_ISOLATION_LIBRARY_DESCRIPTION_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/custom/isolation/message_bytes.h"
#include "ops/custom_op.h"

namespace weft {

// All of it but its functions, of which it says which there are.
std::string DescribeLibrary(const WeftOpLibrary& library);

// The functions that stand for those of a library that is elsewhere; they get the descriptor's
// `user`.
struct StandInFunctions {
  WeftFunction infer = nullptr;
  WeftFunction run_cpu = nullptr;
  WeftFunction gradient = nullptr;
  double (*flops)(const WeftHost* host, WeftCall* call, const void* user) = nullptr;
};

// A library's declarations read back, with stand-ins for its functions. Owns what they point at.
// Not movable: its parts point at each other.
class LibraryDescription {
 public:
  // InvalidArgument for bytes that describe none, or an op with a kernel for GPUs alone: that
  // cannot run apart, since the other process does not share the device's memory. An op with both
  // has the one for CPUs. The bytes may be anybody's; RegisterOpLibrary checks what they declare.
  static absl::StatusOr<std::unique_ptr<LibraryDescription>> Parse(
      std::string_view bytes, const StandInFunctions& functions);
  LibraryDescription(const LibraryDescription&) = delete;
  LibraryDescription& operator=(const LibraryDescription&) = delete;

  const WeftOpLibrary& library() const { return library_; }
  // What the descriptor `op`'s functions get.
  void SetUser(uint32_t op, const void* user) { ops_[op].user = user; }

 private:
  LibraryDescription() = default;
  const char* ReadText(MessageReader& message);  // may be null
  const std::vector<WeftOperand>& ReadOperands(MessageReader& message);
  absl::Status ReadOp(MessageReader& message, const StandInFunctions& functions);

  std::deque<std::string> texts_;
  std::deque<std::vector<int32_t>> numbers_;
  std::deque<std::vector<WeftOperand>> operands_;
  std::deque<std::vector<WeftAttributeDeclaration>> attributes_;
  std::vector<WeftOpDescriptor> ops_;
  WeftOpLibrary library_{};
};

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_LIBRARY_DESCRIPTION_H_
