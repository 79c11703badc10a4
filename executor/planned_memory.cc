#include "executor/planned_memory.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
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
  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec&) override {
    return opened_++;
  }
  absl::Status Send(ChannelHandle, MessageKey, const void*) override { return NeverRun("send"); }
  absl::Status WaitSent(ChannelHandle) override { return NeverRun("send"); }
  absl::Status Receive(ChannelHandle, MessageKey, void*) override { return NeverRun("receive"); }
  absl::Status RunCollective(CollectiveHandle, MessageKey, void* const*) override {
    return NeverRun("collective");
  }
  void Abort(const absl::Status&) override {}

 private:
  const RankId rank_;
  int opened_ = 0;
};

class NoInput final : public InputSource {
 public:
  absl::Status Fill(int64_t, const FeedInput&, int64_t, int64_t, void*) override {
    return NeverRun("input");
  }
};

}  // namespace

absl::StatusOr<ProgramMemory> PlanProgramMemory(const Partition& partition, Device& device) {
  VariableStore variables(device);
  WEFT_RETURN_IF_ERROR(variables.Add(partition.variables));
  UnconnectedCommunicator communicator(partition.rank);
  NoInput input;
  ExecutorEnvironment environment;
  environment.device = &device;
  environment.variables = &variables;
  environment.communicator = &communicator;
  environment.input = &input;
  environment.clock = &RealClock();
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<StepProgram> program,
                        CompileStep(partition, environment));
  return program->memory();
}

}  // namespace weft
