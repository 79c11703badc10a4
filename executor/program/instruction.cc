#include "executor/program/instruction.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

bound::KernelRun Bind(const lowered::KernelRun& run) {
  bound::KernelRun bound;
  bound.kernel = run.kernel;
  bound.inputs.resize(run.inputs.size());
  bound.outputs.resize(run.outputs.size());
  return bound;
}

bound::Collective Bind(const lowered::Collective& collective) {
  return {&collective, std::vector<void*>(collective.buffers.size())};
}

bound::ValueRun Bind(const lowered::ValueRun& run) {
  return {&run, std::vector<const void*>(run.inputs.size())};
}

bound::Fill Bind(const lowered::Fill& fill) { return {&fill, nullptr}; }
bound::Send Bind(const lowered::Send& send) { return {&send, nullptr}; }
bound::WaitSent Bind(const lowered::WaitSent& wait) { return {&wait}; }
bound::Receive Bind(const lowered::Receive& receive) { return {&receive, nullptr}; }
bound::Add Bind(const lowered::Add& add) {
  return {&add, {add.dtype, add.elements, nullptr, nullptr}};
}
bound::Copy Bind(const lowered::Copy& copy) { return {&copy, nullptr, nullptr}; }
bound::Pack Bind(const lowered::Pack& pack) { return {&pack, {pack.region, nullptr, nullptr}}; }
bound::Guard Bind(const lowered::Guard& guard) { return {&guard, nullptr}; }
bound::Signal Bind(const lowered::Signal& signal) { return {&signal, false}; }
bound::Await Bind(const lowered::Await& await) { return {&await}; }
bound::TakeValue Bind(const lowered::TakeValue& take) { return {&take}; }
bound::Load Bind(const lowered::Load& load) { return {&load, nullptr}; }

}  // namespace

absl::StatusOr<Instruction> NewInstruction(const LoweredInstruction& lowered,
                                           int total_micro_batches) {
  Instruction instruction;
  instruction.info = lowered.info;
  instruction.micro_batch = lowered.micro_batch;
  bool is_finished = true;
  std::visit(
      [&](const auto& what) {
        if constexpr (requires { Bind(what); }) {
          instruction.work = Bind(what);
        } else {
          is_finished = false;
        }
      },
      lowered.work);
  if (!is_finished) {
    return absl::InternalError(absl::StrCat("a lowered step holds a '", FamilyName(lowered),
                                            "', which a pass must have replaced"));
  }
  const auto* const run = lowered.As<lowered::KernelRun>();
  if (run != nullptr && lowered.micro_batch >= 0) {
    KernelContext& context = instruction.As<bound::KernelRun>()->context;
    context.micro_batch = lowered.micro_batch;
    context.micro_batches = total_micro_batches;
    context.first_sample = run->first_sample;
    context.samples = run->samples;
  }
  return instruction;
}

void VisitAddresses(const LoweredInstruction& lowered, Instruction& instruction, ReadVisitor read,
                    WriteVisitor write) {
  std::visit(
      [&](auto& bound) {
        using Bound = std::decay_t<decltype(bound)>;
        if constexpr (std::is_same_v<Bound, bound::KernelRun>) {
          const auto& run = *lowered.As<lowered::KernelRun>();
          for (size_t i = 0; i < run.inputs.size(); ++i) read(run.inputs[i], bound.inputs[i]);
          for (size_t i = 0; i < run.outputs.size(); ++i) write(run.outputs[i], bound.outputs[i]);
          write(run.workspace, bound.context.workspace);
        } else if constexpr (std::is_same_v<Bound, bound::ValueRun>) {
          const std::vector<BufferIndex>& inputs = bound.what->inputs;
          for (size_t i = 0; i < inputs.size(); ++i) read(inputs[i], bound.inputs[i]);
        } else if constexpr (std::is_same_v<Bound, bound::Collective>) {
          const std::vector<BufferIndex>& buffers = bound.what->buffers;
          for (size_t i = 0; i < buffers.size(); ++i) write(buffers[i], bound.buffers[i]);
        } else if constexpr (std::is_same_v<Bound, bound::Guard>) {
          read(bound.what->value, bound.value);
        } else if constexpr (requires { bound.arguments; }) {
          read(bound.what->from, bound.arguments.from);
          write(bound.what->into, bound.arguments.into);
        } else {
          if constexpr (requires { bound.from; }) read(bound.what->from, bound.from);
          if constexpr (requires { bound.into; }) write(bound.what->into, bound.into);
        }
      },
      instruction.work);
}

HostOperands HostOperandsOf(Instruction& instruction) {
  if (auto* const receive = instruction.As<bound::Receive>()) {
    return {&receive->into, 1, false, true};
  }
  if (auto* const collective = instruction.As<bound::Collective>()) {
    return {collective->buffers.data(), collective->buffers.size(), true, true};
  }
  // Nobody writes to these.
  if (auto* const send = instruction.As<bound::Send>()) {
    return {const_cast<void* const*>(&send->from), 1, true, false};
  }
  if (auto* const guard = instruction.As<bound::Guard>()) {
    return {const_cast<void* const*>(&guard->value), 1, true, false};
  }
  return {};
}

std::vector<int64_t> HostOperandBytes(const LoweredInstruction& lowered,
                                      const BufferTable& buffers) {
  if (const auto* const receive = lowered.As<lowered::Receive>()) {
    return {buffers.bytes(receive->into)};
  }
  if (const auto* const send = lowered.As<lowered::Send>()) return {buffers.bytes(send->from)};
  if (const auto* const guard = lowered.As<lowered::Guard>()) return {buffers.bytes(guard->value)};
  std::vector<int64_t> bytes;
  if (const auto* const collective = lowered.As<lowered::Collective>()) {
    for (const BufferIndex buffer : collective->buffers) bytes.push_back(buffers.bytes(buffer));
    bytes.front() = std::max(bytes.front(), collective->region_bytes);
  }
  return bytes;
}

}  // namespace weft
