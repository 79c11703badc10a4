#include "ops/custom/isolation/helper_call.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/custom/custom_op.h"
#include "ops/kernels/cpu/blocks/parallel.h"

namespace weft {
namespace {

// The worker is gone, or cannot be understood any more.
[[noreturn]] void EndHelper() { _exit(EXIT_FAILURE); }

template <typename T>
T NumberOf(std::string_view answer) {
  return MessageReader(answer).Number<T>();
}

std::string_view TextOf(const char* text) { return text == nullptr ? "" : text; }

}  // namespace

void HelperEnd::Send(HelperFrame kind, std::string_view payload) {
  if (!channel_.Send(kind, payload, kNoDeadline).ok()) EndHelper();
}

ReceivedFrame HelperEnd::Receive() {
  while (true) {
    absl::StatusOr<ReceivedFrame> frame = channel_.Receive(kNoDeadline);
    if (!frame.ok()) EndHelper();
    if (frame->kind != HelperFrame::kMapping) return *std::move(frame);
    absl::StatusOr<SharedPages> pages =
        SharedPages::Map(channel_.TakeDescriptor(), NumberOf<uint64_t>(frame->payload));
    if (!pages.ok()) EndHelper();
    mappings_.push_back(*std::move(pages));
  }
}

void HelperEnd::DropOldMappings() {
  while (mappings_.size() > 1) mappings_.pop_front();
}

HelperCall::HelperCall(HelperEnd& end, CallMessage message)
    : end_(end), message_(std::move(message)) {}

HelperCall& HelperCall::Of(const WeftCall* call) {
  return *reinterpret_cast<HelperCall*>(const_cast<WeftCall*>(call));
}

void HelperCall::Serve(const WeftOpDescriptor& op) {
  double flops = 0;
  try {
    switch (message_.function) {
      case LibraryFunction::kInfer:
        op.infer(&Table(), abi(), op.user);
        break;
      case LibraryFunction::kCompute:
        op.run_cpu(&Table(), abi(), op.user);
        break;
      case LibraryFunction::kGradient:
        op.gradient(&Table(), abi(), op.user);
        break;
      case LibraryFunction::kFlops:
        flops = op.flops(&Table(), abi(), op.user);
    }
  } catch (...) {
    Fail("an exception left the library");
  }
  MessageWriter done;
  done.Number(flops);
  end_.Send(HelperFrame::kDone, done.bytes());
}

std::string HelperCall::Ask(HostFunction function, const MessageWriter& arguments) {
  MessageWriter question;
  question.Number(function);
  end_.Send(HelperFrame::kQuestion, question.bytes() + arguments.bytes());
  while (true) {
    ReceivedFrame frame = end_.Receive();
    if (frame.kind == HelperFrame::kAnswer) return std::move(frame.payload);
    // What it asked for needs the library once more: a node that a gradient adds, its shapes.
    if (frame.kind != HelperFrame::kCall || !end_.Serve(frame.payload)) EndHelper();
  }
}

std::string HelperCall::Ask(HostFunction function, int32_t argument) {
  MessageWriter arguments;
  arguments.Number(argument);
  MutexLock lock(mutex_);
  return Ask(function, arguments);
}

void HelperCall::Fail(const char* message) {
  MessageWriter arguments;
  arguments.Text(TextOf(message));
  MutexLock lock(mutex_);
  Ask(HostFunction::kFail, arguments);
}

bool HelperCall::Has(const std::vector<uint8_t>& operands, int32_t i) const {
  return i >= 0 && i < static_cast<int32_t>(operands.size()) && operands[i] != 0;
}

WeftTensor HelperCall::Operand(HostFunction function, int32_t i) {
  const bool is_input = function == HostFunction::kInput;
  if (is_compute() && Has(is_input ? message_.inputs : message_.outputs, i)) {
    const auto& tensors = is_input ? message_.input_tensors : message_.output_tensors;
    return tensors[i].At(end_.memory());
  }
  Ask(function, i);
  return {};
}

WeftType HelperCall::TypeOf(HostFunction function, int32_t i) {
  const std::string answer = Ask(function, i);
  MessageReader reader(answer);
  WeftType type{};
  type.dtype = reader.Number<int32_t>();
  type.rank = reader.Number<int32_t>();
  MutexLock lock(mutex_);
  type.dims = dims_.emplace_back(reader.Numbers<int64_t>()).data();
  return type;
}

int32_t HelperCall::Value(int32_t i, WeftTensor* tensor) {
  const std::string answer = Ask(HostFunction::kInputValue, i);
  MessageReader reader(answer);
  if (reader.Number<int32_t>() == 0) return 0;
  MutexLock lock(mutex_);
  *tensor = values_.emplace_back(ReadTensor(reader)).At(end_.memory());
  return 1;
}

void HelperCall::SetOutputType(int32_t i, const WeftType& type) {
  MessageWriter arguments;
  arguments.Number(i);
  arguments.Number(type.dtype);
  arguments.Number(type.rank);
  arguments.Numbers(type.dims, static_cast<size_t>(std::max(type.rank, 0)));
  MutexLock lock(mutex_);
  Ask(HostFunction::kSetOutputType, arguments);
}

void HelperCall::ParallelFor(int64_t items, double nanoseconds,
                             void (*body)(void*, int64_t, int64_t), void* argument) {
  if (!is_compute()) return Fail("the op called parallel_for where it has no place");
  cpu::ParallelFor(message_.threads, items, nanoseconds, 1,
                   [&](int64_t begin, int64_t end) { body(argument, begin, end); });
}

void HelperCall::AddNode(std::string_view domain, std::string_view op, const WeftValue* inputs,
                         int32_t num_inputs, const WeftAttribute* attributes,
                         int32_t num_attributes, WeftValue* outputs, int32_t num_outputs) {
  MessageWriter arguments;
  arguments.Text(domain);
  arguments.Text(op);
  arguments.Numbers(inputs, static_cast<size_t>(std::max(num_inputs, 0)));
  WriteAttributes(AttributesFromAbi(attributes, num_attributes), arguments);
  arguments.Number(num_outputs);
  MutexLock lock(mutex_);
  const std::string answer = Ask(HostFunction::kAddNode, arguments);
  const std::vector<WeftValue> made = MessageReader(answer).Numbers<WeftValue>();
  for (int32_t k = 0; k < num_outputs; ++k) {
    outputs[k] = k < static_cast<int32_t>(made.size()) ? made[k] : 0;
  }
}

void HelperCall::SetInputGradient(int32_t i, WeftValue gradient) {
  MessageWriter arguments;
  arguments.Number(i);
  arguments.Number(gradient);
  MutexLock lock(mutex_);
  Ask(HostFunction::kSetInputGradient, arguments);
}

WeftValue HelperCall::Constant(int32_t dtype, double value) {
  MessageWriter arguments;
  arguments.Number(dtype);
  arguments.Number(value);
  MutexLock lock(mutex_);
  return NumberOf<WeftValue>(Ask(HostFunction::kConstant, arguments));
}

const WeftHost& HelperCall::Table() {
  static const WeftHost table = MakeTable();
  return table;
}

WeftHost HelperCall::MakeTable() {
  using C = WeftCall;
  WeftHost host{};
  host.abi_version = WEFT_CUSTOM_OP_ABI_VERSION;
  host.size = sizeof(WeftHost);
  host.fail = [](C* c, const char* message) { Of(c).Fail(message); };
  host.num_inputs = [](const C* c) { return static_cast<int32_t>(Of(c).message_.inputs.size()); };
  host.num_outputs = [](const C* c) { return static_cast<int32_t>(Of(c).message_.outputs.size()); };
  host.has_input = [](const C* c, int32_t i) -> int32_t {
    return Of(c).Has(Of(c).message_.inputs, i);
  };
  host.has_output = [](const C* c, int32_t i) -> int32_t {
    return Of(c).Has(Of(c).message_.outputs, i);
  };
  host.attribute = [](const C* c, const char* name, WeftAttribute* attribute) {
    return AttributeToAbi(Of(c).message_.attributes, name, attribute);
  };
  host.input_type = [](const C* c, int32_t i, WeftType* type) {
    *type = Of(c).TypeOf(HostFunction::kInputType, i);
  };
  host.output_type = [](const C* c, int32_t i, WeftType* type) {
    *type = Of(c).TypeOf(HostFunction::kOutputType, i);
  };
  host.input_value = [](const C* c, int32_t i, WeftTensor* t) { return Of(c).Value(i, t); };
  host.set_output_type = [](C* c, int32_t i, const WeftType* t) { Of(c).SetOutputType(i, *t); };
  host.input = [](const C* c, int32_t i, WeftTensor* tensor) {
    *tensor = Of(c).Operand(HostFunction::kInput, i);
  };
  host.output = [](const C* c, int32_t i, WeftTensor* tensor) {
    *tensor = Of(c).Operand(HostFunction::kOutput, i);
  };
  host.parallel_for = [](C* c, int64_t items, double nanoseconds,
                         void (*body)(void*, int64_t, int64_t),
                         void* argument) { Of(c).ParallelFor(items, nanoseconds, body, argument); };
  host.stream = [](const C*) -> void* { return nullptr; };
  host.step = [](const C* c) { return NumberOf<int64_t>(Of(c).Ask(HostFunction::kStep, 0)); };
  host.input_value_id = [](const C* c, int32_t i) {
    return NumberOf<WeftValue>(Of(c).Ask(HostFunction::kInputId, i));
  };
  host.output_value_id = [](C* c, int32_t i) {
    return NumberOf<WeftValue>(Of(c).Ask(HostFunction::kOutputId, i));
  };
  host.output_gradient = [](const C* c, int32_t i) {
    return NumberOf<WeftValue>(Of(c).Ask(HostFunction::kOutputGradient, i));
  };
  host.needs_input_gradient = [](const C* c, int32_t i) {
    return NumberOf<int32_t>(Of(c).Ask(HostFunction::kNeedsInputGradient, i));
  };
  host.set_input_gradient = [](C* c, int32_t i, WeftValue gradient) {
    Of(c).SetInputGradient(i, gradient);
  };
  host.add_node = [](C* c, const char* domain, const char* op, const WeftValue* inputs,
                     int32_t num_inputs, const WeftAttribute* attributes, int32_t num_attributes,
                     WeftValue* outputs, int32_t num_outputs) {
    Of(c).AddNode(TextOf(domain), TextOf(op), inputs, num_inputs, attributes, num_attributes,
                  outputs, num_outputs);
  };
  host.constant = [](C* c, int32_t dtype, double value) { return Of(c).Constant(dtype, value); };
  return host;
}

}  // namespace weft
