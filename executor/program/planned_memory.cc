#include "executor/program/planned_memory.h"

#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/interfaces/step_commit.h"
#include "executor/lowering/executor_environment.h"
#include "executor/memory/unexpected_messages.h"
#include "executor/program/compile_step.h"
#include "platform/clock.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status NeverRun(const char* what) {
  return absl::InternalError(
      absl::StrCat(what, " of a program that was compiled for its memory alone"));
}

// Opens whatever is asked for.
class UnconnectedCommunicator final : public Communicator {
 public:
  explicit UnconnectedCommunicator(RankId rank) : rank_(rank) {}
  RankId rank() const override { return rank_; }
  absl::StatusOr<ChannelHandle> OpenChannel(const Channel&) override { return opened_++; }
  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec& spec) override {
    collectives_.push_back(spec);
    return opened_++;
  }
  absl::Status Send(ChannelHandle, MessageKey, const void*) override { return NeverRun("send"); }
  absl::Status WaitSent(ChannelHandle) override { return NeverRun("send"); }
  absl::Status Receive(ChannelHandle, MessageKey, void*) override { return NeverRun("receive"); }
  absl::Status RunCollective(CollectiveHandle, MessageKey, void* const*) override {
    return NeverRun("collective");
  }
  int64_t unexpected_collective_bytes(RankId peer) const override {
    std::vector<const CollectiveSpec*> specs;
    for (const CollectiveSpec& spec : collectives_) specs.push_back(&spec);
    return UnexpectedCollectiveBytes(specs, peer);
  }
  void Abort(const absl::Status&) override {}

  // The other members of all collectives.
  std::set<RankId> peers() const {
    std::set<RankId> peers;
    for (const CollectiveSpec& spec : collectives_) {
      peers.insert(spec.group.begin(), spec.group.end());
    }
    peers.erase(rank_);
    return peers;
  }

 private:
  const RankId rank_;
  int opened_ = 0;
  std::vector<CollectiveSpec> collectives_;
};

class NoInput final : public InputSource {
 public:
  absl::Status Fill(int64_t, const FeedInput&, int64_t, int64_t, void*) override {
    return NeverRun("input");
  }
};

class NobodyAgrees final : public StepCommit {
 public:
  absl::Status Agree(int64_t) override { return NeverRun("commit"); }
};

}  // namespace

absl::StatusOr<ProgramMemory> PlanProgramMemory(const Partition& partition, Device& device) {
  WEFT_ASSIGN_OR_RETURN(const PlannedProgram program,
                        PlanProgram(partition, device, std::numeric_limits<int64_t>::max()));
  return program.memory;
}

absl::StatusOr<PlannedProgram> PlanProgram(const Partition& partition, Device& device,
                                           int64_t max_bytes,
                                           const LoweringObserver* observe_lowering) {
  VariableStore variables(device);
  WEFT_RETURN_IF_ERROR(variables.Add(partition.variables));
  if (variables.bytes() > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the variables take ", variables.bytes(), " bytes; there may be ", max_bytes));
  }
  UnconnectedCommunicator communicator(partition.rank);
  NoInput input;
  NobodyAgrees commit;
  ExecutorEnvironment environment;
  environment.device = &device;
  environment.variables = &variables;
  environment.communicator = &communicator;
  environment.input = &input;
  environment.clock = &RealClock();
  environment.commit = partition.commits ? &commit : nullptr;
  environment.max_arena_bytes = max_bytes - variables.bytes();
  environment.observe_lowering = observe_lowering;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<StepProgram> program,
                        CompileStep(partition, environment));
  PlannedProgram planned = {program->memory(), UnexpectedChannelBytes(partition)};
  for (const RankId peer : communicator.peers()) {
    planned.unexpected_bytes[peer] += communicator.unexpected_collective_bytes(peer);
  }
  return planned;
}

}  // namespace weft
