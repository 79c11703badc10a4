#include "ops/custom/isolation/isolated_library.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/custom/custom_op.h"
#include "ops/custom/isolation/host_answers.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr size_t kPlaceAlignment = 64;  // of a tensor in the shared memory
constexpr size_t kPageBytes = 4096;
constexpr int kMaxQuestions = 1 << 20;  // of one call: a library must not fill our memory
constexpr size_t kLongestException = 4000;

size_t RoundedUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

MonotonicDeadline DeadlineOf(absl::Duration timeout) {
  return timeout == absl::ZeroDuration() ? kNoDeadline : DeadlineAfter(timeout);
}

// What the function learns of the node at once.
CallMessage BeginOfCall(LibraryFunction function, uint32_t op, const WeftHost& host,
                        const WeftCall& call) {
  CallMessage message;
  message.function = function;
  message.op = op;
  message.threads = LoopThreads(call);
  const int32_t num_inputs = host.num_inputs(&call);
  for (int32_t i = 0; i < num_inputs; ++i) {
    message.inputs.push_back(host.has_input(&call, i) != 0);
  }
  const int32_t num_outputs = host.num_outputs(&call);
  for (int32_t i = 0; i < num_outputs; ++i) {
    message.outputs.push_back(host.has_output(&call, i) != 0);
  }
  message.attributes = NodeOfCall(call).attributes;
  return message;
}

bool IsDoingOfHelper(const absl::Status& failure) {
  return failure.code() == absl::StatusCode::kUnavailable ||
         failure.code() == absl::StatusCode::kDeadlineExceeded ||
         failure.code() == absl::StatusCode::kInvalidArgument;
}

}  // namespace

IsolatedLibrary::IsolatedLibrary(std::string name, FileDescriptor image, IsolationOptions options)
    : name_(std::move(name)), image_(std::move(image)), options_(std::move(options)) {}

pid_t IsolatedLibrary::helper() {
  MutexLock lock(mutex_);
  return helper_ == nullptr ? 0 : helper_->id();
}

// ---- The helper

absl::StatusOr<std::string> IsolatedLibrary::ReceiveDescription() {
  WEFT_ASSIGN_OR_RETURN(ReceivedFrame frame,
                        helper_->channel().Receive(DeadlineOf(options_.load_timeout)));
  if (frame.kind == HelperFrame::kDescription) return std::move(frame.payload);
  if (frame.kind == HelperFrame::kThrew) {
    thrown_ = absl::StrCat(": ", frame.payload);
    return absl::UnavailableError("an exception");
  }
  MessageReader refusal(frame.payload);
  const auto code = refusal.Number<int32_t>();
  const std::string text(refusal.Text());
  const bool is_refusal = frame.kind == HelperFrame::kRefused && refusal.WasAll() && code > 0 &&
                          code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  if (!is_refusal) return absl::InvalidArgumentError("it has not said what it declares");
  return absl::FailedPreconditionError(text);  // not the code of a channel that fails
}

absl::Status IsolatedLibrary::StartHelper() {
  if (helper_ != nullptr && helper_->channel().HasNews()) {
    // Nobody has asked it for anything: it has ended, or its library writes what it likes.
    const std::string end =
        EndHelper(absl::UnavailableError(""), options_.op_timeout, "between two calls");
    Log(LogLevel::kWarning, "the helper of the op library '", name_, "' ", end,
        "; another one is started");
  }
  if (helper_ != nullptr) return absl::OkStatus();
  if (depth_ > 0) return absl::AbortedError("the helper of the call around this one has ended");
  WEFT_ASSIGN_OR_RETURN(helper_, HelperProcess::Start(options_.program, image_));
  helper_has_pages_ = false;
  absl::StatusOr<std::string> description = ReceiveDescription();
  if (!description.ok() && IsDoingOfHelper(description.status())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its code ",
        EndHelper(description.status(), options_.load_timeout, "while it was loaded")));
  }
  if (!description.ok()) {
    helper_ = nullptr;
    return absl::InvalidArgumentError(description.status().message());
  }
  if (!description_bytes_.empty() && *description != description_bytes_) {
    helper_ = nullptr;
    return absl::InvalidArgumentError("it declares other ops than when it was loaded first");
  }
  description_bytes_ = *std::move(description);
  return absl::OkStatus();
}

std::string IsolatedLibrary::EndHelper(const absl::Status& failure, absl::Duration timeout,
                                       const std::string& where) {
  const std::unique_ptr<HelperProcess> helper = std::move(helper_);
  const std::string thrown = std::exchange(thrown_, "");
  if (failure.code() == absl::StatusCode::kDeadlineExceeded) {
    helper->End(absl::ZeroDuration(), "");
    return absl::StrCat("has not ended in ", absl::ToDoubleSeconds(timeout), " s, ", where,
                        ": does it loop?");
  }
  if (failure.code() == absl::StatusCode::kInvalidArgument) {
    helper->End(absl::ZeroDuration(), "");
    return absl::StrCat("wrote to the channel of its process, ", where, ": ",
                        std::string(failure.message()));
  }
  const std::string end = helper->End(absl::Seconds(2), "closed the channel of its process");
  if (thrown.empty()) {
    const bool is_killed = end == "died of SIGKILL";
    return absl::StrCat(end, " ", where, is_killed ? ": has the machine run out of memory?" : "");
  }
  return absl::StrCat("threw an exception that nothing caught, ", where,
                      thrown.substr(0, kLongestException));
}

absl::StatusOr<std::string> IsolatedLibrary::Describe() {
  MutexLock lock(mutex_);
  WEFT_RETURN_IF_ERROR(StartHelper());
  return description_bytes_;
}

// ---- Shared memory

absl::Status IsolatedLibrary::Reserve(size_t bytes, MonotonicDeadline deadline) {
  if (bytes > pages_.bytes()) {
    size_t size = bytes;
    {
      MutexLock lock(kernels_mutex_);
      size = std::max(size, largest_kernel_);
    }
    WEFT_ASSIGN_OR_RETURN(pages_, SharedPages::Create(RoundedUp(size, kPageBytes)));
    helper_has_pages_ = false;
  }
  if (helper_has_pages_ || pages_.bytes() == 0) return absl::OkStatus();
  MessageWriter mapping;
  mapping.Number(uint64_t{pages_.bytes()});
  WEFT_RETURN_IF_ERROR(helper_->channel().Send(HelperFrame::kMapping, mapping.bytes(), deadline,
                                               pages_.descriptor()));
  helper_has_pages_ = true;
  return absl::OkStatus();
}

absl::Status IsolatedLibrary::ShareOperands(CallMessage& message, const WeftHost& host,
                                            const WeftCall& call, MonotonicDeadline deadline) {
  std::vector<const void*> sources;
  const auto describe = [&](const std::vector<uint8_t>& present, auto get,
                            std::vector<SharedTensor>& tensors) {
    mutex_.AssertHeld();
    for (size_t i = 0; i < present.size(); ++i) {
      WeftTensor tensor{};
      if (present[i] != 0) get(&call, static_cast<int32_t>(i), &tensor);
      sources.push_back(tensor.data);
      SharedTensor& shared = tensors.emplace_back(DescribeTensor(tensor));
      if (tensor.data == nullptr) continue;
      shared.place = static_cast<int64_t>(used_);
      used_ += PlaceBytes(shared.bytes());
    }
  };
  describe(message.inputs, host.input, message.input_tensors);
  describe(message.outputs, host.output, message.output_tensors);
  WEFT_RETURN_IF_ERROR(Reserve(used_, deadline));
  for (size_t i = 0; i < message.inputs.size(); ++i) {
    const SharedTensor& tensor = message.input_tensors[i];
    if (tensor.place < 0 || tensor.bytes() == 0) continue;
    std::memcpy(pages_.data() + tensor.place, sources[i], static_cast<size_t>(tensor.bytes()));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> IsolatedLibrary::ShareValue(const void* data, int64_t bytes,
                                                    MonotonicDeadline deadline) {
  const size_t size = PlaceBytes(bytes);
  if (used_ + size > pages_.bytes()) {
    // The helper keeps the old pages until the call ends: values that it was given lie there.
    const size_t before = pages_.bytes();
    pages_ = SharedPages();
    used_ = 0;
    WEFT_RETURN_IF_ERROR(Reserve(std::max(size, before), deadline));
  } else {
    WEFT_RETURN_IF_ERROR(Reserve(used_ + size, deadline));  // another helper may not have them yet
  }
  std::memcpy(pages_.data() + used_, data, static_cast<size_t>(bytes));
  return static_cast<int64_t>(std::exchange(used_, used_ + size));
}

void IsolatedLibrary::TakeOutputs(const CallMessage& message, const WeftHost& host,
                                  const WeftCall& call) {
  for (size_t i = 0; i < message.output_tensors.size(); ++i) {
    const SharedTensor& tensor = message.output_tensors[i];
    if (tensor.place < 0 || tensor.bytes() == 0) continue;
    WeftTensor into{};
    host.output(&call, static_cast<int32_t>(i), &into);
    std::memcpy(into.data, pages_.data() + tensor.place, static_cast<size_t>(tensor.bytes()));
  }
}

size_t IsolatedLibrary::PlaceBytes(int64_t bytes) {
  return RoundedUp(static_cast<size_t>(bytes), kPlaceAlignment);
}

size_t IsolatedLibrary::AddKernel(size_t bytes) {
  MutexLock lock(kernels_mutex_);
  ++kernels_;
  const size_t before = largest_kernel_;
  largest_kernel_ = std::max(largest_kernel_, bytes);
  return largest_kernel_ - before;
}

void IsolatedLibrary::RemoveKernel() {
  MutexLock lock(kernels_mutex_);
  if (--kernels_ == 0) largest_kernel_ = 0;  // what comes next is another job's
}

// ---- Calls

absl::Status IsolatedLibrary::Call(LibraryFunction function, uint32_t op, const WeftHost& host,
                                   WeftCall& call, double* flops) {
  if (caller_.load() == std::this_thread::get_id()) {
    mutex_.AssertHeld();
    return RunCall(function, op, host, call, flops);
  }
  MutexLock lock(mutex_);
  caller_ = std::this_thread::get_id();
  used_ = 0;
  const absl::Status status = RunCall(function, op, host, call, flops);
  caller_ = std::thread::id();
  return status;
}

absl::Status IsolatedLibrary::RunCall(LibraryFunction function, uint32_t op, const WeftHost& host,
                                      WeftCall& call, double* flops) {
  const Node& node = NodeOfCall(call);
  const std::string subject = absl::StrCat("op library '", name_, "': node '", node.name, "' (",
                                           node.domain, "::", node.op, ") ");
  if (const absl::Status started = StartHelper(); !started.ok()) {
    return absl::Status(
        started.code(),
        absl::StrCat(subject, "has no helper process to run in: ", std::string(started.message())));
  }
  CallMessage message = BeginOfCall(function, op, host, call);
  ++depth_;
  const absl::Status status = Exchange(message, host, call, flops);
  --depth_;
  if (status.ok() || helper_ == nullptr) return status;
  if (IsDoingOfHelper(status)) {
    const std::string where = absl::StrCat("in ", std::string(LibraryFunctionName(function)));
    return absl::InvalidArgumentError(subject + EndHelper(status, options_.op_timeout, where));
  }
  helper_ = nullptr;  // it waits in the midst of the call
  return absl::Status(status.code(),
                      absl::StrCat(subject, "cannot run apart: ", std::string(status.message())));
}

absl::Status IsolatedLibrary::Exchange(CallMessage& message, const WeftHost& host, WeftCall& call,
                                       double* flops) {
  const MonotonicDeadline deadline = DeadlineOf(options_.op_timeout);
  if (message.function == LibraryFunction::kCompute) {
    WEFT_RETURN_IF_ERROR(ShareOperands(message, host, call, deadline));
  }
  HelperChannel& channel = helper_->channel();
  WEFT_RETURN_IF_ERROR(channel.Send(HelperFrame::kCall, EncodeCall(message), deadline));
  const auto share = [&](const void* data, int64_t bytes) {
    mutex_.AssertHeld();
    return ShareValue(data, bytes, deadline);
  };
  for (int questions = 0; questions < kMaxQuestions; ++questions) {
    WEFT_ASSIGN_OR_RETURN(const ReceivedFrame frame, channel.Receive(deadline));
    if (frame.kind == HelperFrame::kThrew) {
      thrown_ = absl::StrCat(": ", frame.payload);
      return absl::UnavailableError("an exception");
    }
    if (frame.kind == HelperFrame::kDone) {
      MessageReader done(frame.payload);
      const double result = done.Number<double>();
      if (!done.WasAll()) return absl::InvalidArgumentError("its result is not whole");
      if (flops != nullptr) *flops = result;
      if (message.function == LibraryFunction::kCompute) TakeOutputs(message, host, call);
      return absl::OkStatus();
    }
    if (frame.kind != HelperFrame::kQuestion) {
      return absl::InvalidArgumentError("it answers what nobody has asked");
    }
    WEFT_ASSIGN_OR_RETURN(const std::string answer,
                          AnswerQuestion(host, call, frame.payload, share));
    // A call within this one has failed: its error is that of this one, too.
    if (helper_ == nullptr) return absl::AbortedError("a call within this one ended the helper");
    WEFT_RETURN_IF_ERROR(channel.Send(HelperFrame::kAnswer, answer, deadline));
  }
  return absl::InvalidArgumentError("it asks without an end");
}

}  // namespace weft
