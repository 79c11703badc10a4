// HelperCall: one call of a library's function, as the helper process serves it.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_HELPER_CALL_H_
#define WEFT_OPS_CUSTOM_ISOLATION_HELPER_CALL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "ops/custom/isolation/helper_channel.h"
#include "ops/custom/isolation/helper_messages.h"
#include "ops/custom/isolation/shared_pages.h"
#include "ops/custom_op.h"
#include "platform/mutex.h"

namespace weft {

// The helper's end: the channel to the worker, and the memory that both see. Ends the process when
// the worker is gone. One thread at a time.
class HelperEnd {
 public:
  explicit HelperEnd(FileDescriptor socket) : channel_(std::move(socket), true) {}

  void Send(HelperFrame kind, std::string_view payload);
  // The next frame. Mappings that come before it are taken in.
  ReceivedFrame Receive();
  // Of the newest mapping.
  std::byte* memory() const { return mappings_.empty() ? nullptr : mappings_.back().data(); }
  // Nothing of an earlier call is used any more.
  void DropOldMappings();

  // What serves a call; false for what is none. Also used within another call.
  void SetServer(std::function<bool(std::string_view call)> server) { server_ = std::move(server); }
  bool Serve(std::string_view call) { return server_(call); }

 private:
  HelperChannel channel_;
  std::deque<SharedPages> mappings_;
  std::function<bool(std::string_view)> server_;
};

// What the library gets as its WeftCall, with the host's table below. What is asked about the node
// and the tensors of a kernel is answered here, parallel loops run here, all else is the worker's
// to answer. Thread-safe: loops may ask, too. Pointers that it gives live as long as it.
class HelperCall {
 public:
  HelperCall(HelperEnd& end, CallMessage message);

  // The number of the op in its library.
  uint32_t op() const { return message_.op; }
  // Calls the function of `op` that the message names, and says kDone.
  void Serve(const WeftOpDescriptor& op);

 private:
  static const WeftHost& Table();
  static WeftHost MakeTable();
  static HelperCall& Of(const WeftCall* call);
  WeftCall* abi() { return reinterpret_cast<WeftCall*>(this); }

  // The worker's answer, as bytes.
  std::string Ask(HostFunction function, const MessageWriter& arguments)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Ask(HostFunction function, int32_t argument) ABSL_LOCKS_EXCLUDED(mutex_);
  void Fail(const char* message);
  bool is_compute() const { return message_.function == LibraryFunction::kCompute; }
  bool Has(const std::vector<uint8_t>& operands, int32_t i) const;
  // The tensor of the node's operand; what the node lacks is the worker's to refuse.
  WeftTensor Operand(HostFunction function, int32_t i);
  WeftType TypeOf(HostFunction function, int32_t i);
  int32_t Value(int32_t i, WeftTensor* tensor);
  void SetOutputType(int32_t i, const WeftType& type);
  void ParallelFor(int64_t items, double nanoseconds, void (*body)(void*, int64_t, int64_t),
                   void* argument);
  void SetInputGradient(int32_t i, WeftValue gradient);
  WeftValue Constant(int32_t dtype, double value);
  void AddNode(std::string_view domain, std::string_view op, const WeftValue* inputs,
               int32_t num_inputs, const WeftAttribute* attributes, int32_t num_attributes,
               WeftValue* outputs, int32_t num_outputs);

  HelperEnd& end_;
  const CallMessage message_;
  Mutex mutex_;
  // What was given away by pointer.
  std::deque<std::vector<int64_t>> dims_ ABSL_GUARDED_BY(mutex_);
  std::deque<SharedTensor> values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_HELPER_CALL_H_
