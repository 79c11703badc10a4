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

bound::HostRun Bind(const lowered::HostRun& run) {
  bound::HostRun bound;
  bound.what = &run;
  size_t count = 0;
  for (const auto* const operands : {&run.inputs, &run.outputs}) {
    count += operands->size() -
             static_cast<size_t>(std::count(operands->begin(), operands->end(), kNoBuffer));
  }
  bound.buffers.resize(count);
  bound.inputs.resize(run.inputs.size());
  bound.outputs.resize(run.outputs.size());
  bound.device_outputs.resize(run.outputs.size());
  return bound;
}

bound::Collective Bind(const lowered::Collective& collective) {
  return {&collective, std::vector<void*>(collective.buffers.size())};
}

bound::ValueRun Bind(const lowered::ValueRun& run) {
  return {&run, std::vector<const void*>(run.inputs.size())};
}

bound::Fill Bind(const lowered::Fill& fill) { return {&fill, nullptr, nullptr}; }
bound::Send Bind(const lowered::Send& send) { return {&send, nullptr}; }
bound::WaitSent Bind(const lowered::WaitSent& wait) { return {&wait}; }
bound::Receive Bind(const lowered::Receive& receive) { return {&receive, nullptr}; }
bound::Add Bind(const lowered::Add& add) {
  return {&add, {add.dtype, add.elements, nullptr, nullptr}};
}
bound::Copy Bind(const lowered::Copy& copy) { return {&copy, nullptr, nullptr}; }
bound::Pack Bind(const lowered::Pack& pack) { return {&pack, {pack.region, nullptr, nullptr}}; }
bound::Guard Bind(const lowered::Guard& guard) { return {&guard, nullptr}; }
bound::Commit Bind(const lowered::Commit&) { return {}; }
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
  const auto place = [&](KernelContext& context, const auto& run) {
    if (lowered.micro_batch < 0) return;
    context.micro_batch = lowered.micro_batch;
    context.micro_batches = total_micro_batches;
    context.first_sample = run.first_sample;
    context.samples = run.samples;
  };
  if (auto* const run = instruction.As<bound::KernelRun>()) {
    place(run->context, *lowered.As<lowered::KernelRun>());
  } else if (auto* const host = instruction.As<bound::HostRun>()) {
    place(host->context, *host->what);
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
        } else if constexpr (std::is_same_v<Bound, bound::HostRun>) {
          size_t place = 0;
          const lowered::HostRun& run = *bound.what;
          for (const BufferIndex buffer : run.inputs) {
            if (buffer != kNoBuffer) write(buffer, bound.buffers[place++]);
          }
          for (size_t i = 0; i < run.outputs.size(); ++i) {
            if (run.outputs[i] == kNoBuffer) continue;
            write(run.outputs[i], bound.buffers[place]);
            bound.device_outputs[i] = bound.buffers[place++];
          }
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
          if constexpr (requires { bound.ahead; }) write(bound.what->ahead, bound.ahead);
        }
      },
      instruction.work);
}

std::span<void* const> DeviceOutputs(Instruction& instruction) {
  if (const auto* const run = instruction.As<bound::KernelRun>()) return run->outputs;
  if (const auto* const host = instruction.As<bound::HostRun>()) return host->device_outputs;
  return {};
}

void PointAtHost(bound::HostRun& run, void* const* operands) {
  size_t place = 0;
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    run.inputs[i] = run.what->inputs[i] == kNoBuffer ? nullptr : operands[place++];
  }
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    run.outputs[i] = run.what->outputs[i] == kNoBuffer ? nullptr : operands[place++];
  }
  run.context.inputs = run.inputs.data();
  run.context.outputs = run.outputs.data();
  run.context.workspace = run.what->workspace_bytes > 0 ? operands[place] : nullptr;
}

HostOperands HostOperandsOf(Instruction& instruction) {
  if (auto* const run = instruction.As<bound::HostRun>()) {
    const std::vector<BufferIndex>& outputs = run->what->outputs;
    const size_t count = run->buffers.size();
    const size_t written =
        outputs.size() - static_cast<size_t>(std::count(outputs.begin(), outputs.end(), kNoBuffer));
    return {run->buffers.data(), count, count - written, count - written, written};
  }
  if (auto* const receive = instruction.As<bound::Receive>()) {
    if (receive->what->lane >= 0) return {};
    return {&receive->into, 1, 0, 0, 1};
  }
  if (auto* const collective = instruction.As<bound::Collective>()) {
    if (collective->what->on_device) return {};
    const size_t count = collective->buffers.size();
    return {collective->buffers.data(), count, count, 0, 1};
  }
  // Nobody writes to these.
  if (auto* const send = instruction.As<bound::Send>()) {
    if (send->what->lane >= 0) return {};
    return {const_cast<void* const*>(&send->from), 1, 1, 0, 0};
  }
  if (auto* const guard = instruction.As<bound::Guard>()) {
    return {const_cast<void* const*>(&guard->value), 1, 1, 0, 0};
  }
  return {};
}

std::vector<int64_t> HostOperandBytes(const LoweredInstruction& lowered,
                                      const BufferTable& buffers) {
  if (const auto* const receive = lowered.As<lowered::Receive>()) {
    if (receive->lane >= 0) return {};
    return {buffers.bytes(receive->into)};
  }
  if (const auto* const send = lowered.As<lowered::Send>()) {
    if (send->lane >= 0) return {};
    return {buffers.bytes(send->from)};
  }
  if (const auto* const guard = lowered.As<lowered::Guard>()) return {buffers.bytes(guard->value)};
  std::vector<int64_t> bytes;
  const auto* const collective = lowered.As<lowered::Collective>();
  if (collective != nullptr && !collective->on_device) {
    for (const BufferIndex buffer : collective->buffers) bytes.push_back(buffers.bytes(buffer));
    bytes.front() = std::max(bytes.front(), collective->region_bytes);
  } else if (const auto* const run = lowered.As<lowered::HostRun>()) {
    for (const auto* const operands : {&run->inputs, &run->outputs}) {
      for (const BufferIndex buffer : *operands) {
        if (buffer != kNoBuffer) bytes.push_back(buffers.bytes(buffer));
      }
    }
    if (run->workspace_bytes > 0) bytes.push_back(run->workspace_bytes);
  }
  return bytes;
}

}  // namespace weft
