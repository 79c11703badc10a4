#include "executor/lowering/lowered_instruction.h"

#include <iterator>
#include <type_traits>

namespace weft {
namespace {

template <typename... Fns>
struct Overloaded : Fns... {
  using Fns::operator()...;
};
template <typename... Fns>
Overloaded(Fns...) -> Overloaded<Fns...>;

// The families that neither read nor write a buffer.
template <typename Family>
concept HasNoBuffers = std::is_same_v<Family, lowered::Commit> ||
    std::is_same_v<Family, lowered::Signal> || std::is_same_v<Family, lowered::Await> ||
    std::is_same_v<Family, lowered::TakeValue> || std::is_same_v<Family, lowered::SumReady>;

}  // namespace

void VisitReads(LoweredInstruction& instruction, BufferVisitor visit) {
  const auto one = [&](BufferIndex& buffer) {
    if (buffer != kNoBuffer) visit(buffer);
  };
  const auto all = [&](std::vector<BufferIndex>& buffers) {
    for (BufferIndex& buffer : buffers) one(buffer);
  };
  std::visit(Overloaded{
                 [&](lowered::KernelRun& run) { all(run.inputs); },
                 [&](lowered::HostRun& run) { all(run.inputs); },
                 [&](lowered::Fill&) {},
                 [&](lowered::Send& send) { one(send.from); },
                 [&](lowered::WaitSent& wait) { one(wait.from); },
                 [&](lowered::Receive&) {},
                 [&](lowered::Collective& collective) { all(collective.buffers); },
                 [&](lowered::Add& add) { one(add.from); },
                 [&](lowered::Copy& copy) { one(copy.from); },
                 [&](lowered::Pack& pack) { one(pack.from); },
                 [&](lowered::Guard& guard) { one(guard.value); },
                 [&](lowered::ValueRun& run) { all(run.inputs); },
                 [&](lowered::Load&) {},
                 [&](lowered::CollectiveNode& node) { all(node.inputs); },
                 [&](lowered::Leaf& leaf) { one(leaf.value); },
                 [](HasNoBuffers auto&) {},
             },
             instruction.work);
}

void VisitWrites(LoweredInstruction& instruction, BufferVisitor visit) {
  const auto one = [&](BufferIndex& buffer) {
    if (buffer != kNoBuffer) visit(buffer);
  };
  const auto all = [&](std::vector<BufferIndex>& buffers) {
    for (BufferIndex& buffer : buffers) one(buffer);
  };
  std::visit(Overloaded{
                 [&](lowered::KernelRun& run) {
                   all(run.outputs);
                   one(run.workspace);
                 },
                 [&](lowered::HostRun& run) { all(run.outputs); },
                 [&](lowered::Fill& fill) {
                   one(fill.into);
                   one(fill.ahead);
                 },
                 [&](lowered::Send&) {},
                 [&](lowered::WaitSent&) {},
                 [&](lowered::Receive& receive) { one(receive.into); },
                 [&](lowered::Collective& collective) { all(collective.outputs); },
                 [&](lowered::Add& add) { one(add.into); },
                 [&](lowered::Copy& copy) { one(copy.into); },
                 [&](lowered::Pack& pack) { one(pack.into); },
                 [&](lowered::Guard&) {},
                 [&](lowered::ValueRun&) {},
                 [&](lowered::Load& load) { one(load.into); },
                 [&](lowered::CollectiveNode& node) { all(node.outputs); },
                 [&](lowered::Leaf&) {},
                 [](HasNoBuffers auto&) {},
             },
             instruction.work);
}

// The visitors below change nothing, so nothing of the instruction changes.
void VisitReads(const LoweredInstruction& instruction, ConstBufferVisitor visit) {
  VisitReads(const_cast<LoweredInstruction&>(instruction),
             [&](BufferIndex& buffer) { visit(buffer); });
}

void VisitWrites(const LoweredInstruction& instruction, ConstBufferVisitor visit) {
  VisitWrites(const_cast<LoweredInstruction&>(instruction),
              [&](BufferIndex& buffer) { visit(buffer); });
}

const char* FamilyName(const LoweredInstruction& instruction) {
  constexpr const char* kNames[] = {
      "kernel",     "host_kernel", "fill",   "send", "wait_sent", "receive",
      "collective", "add",         "copy",   "pack", "guard",     "commit",
      "signal",     "await",       "values", "take", "load",      "collective_node",
      "leaf",       "sum_ready"};
  static_assert(std::size(kNames) == std::variant_size_v<decltype(LoweredInstruction::work)>);
  return kNames[instruction.work.index()];
}

}  // namespace weft
