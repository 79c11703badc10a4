// CompiledStep: gives buffers their addresses and runs the instructions. Internal to
// executor/.
//
//   executor/program/compiled_step.cc           from a lowered step to instructions with addresses
//   executor/program/compiled_step_run.cc       a step: its lists, recordings, its end, reports
//   executor/program/compiled_step_execute.cc   an instruction of each family, what its error says
#ifndef WEFT_EXECUTOR_PROGRAM_COMPILED_STEP_H_
#define WEFT_EXECUTOR_PROGRAM_COMPILED_STEP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/interfaces/communicator.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/lowered_step.h"
#include "executor/lowering/step_description.h"
#include "executor/memory/arena.h"
#include "executor/memory/program_memory.h"
#include "executor/program/communication_thread.h"
#include "executor/program/deferred_sends.h"
#include "executor/program/external_buffers.h"
#include "executor/program/feed_staging.h"
#include "executor/program/feeds_ahead.h"
#include "executor/program/instruction.h"
#include "executor/program/recorded_segments.h"
#include "executor/program/step_program.h"
#include "executor/program/step_scalars.h"
#include "executor/program/value_slots.h"
#include "graph/partition.h"
#include "ops/memory_work.h"
#include "ops/value_node.h"

namespace weft {

// A lowered step on its device. One thread at a time builds and runs it; its collectives run on a
// thread of their own. The environment outlives it.
class CompiledStep final : public StepProgram {
 public:
  CompiledStep(const ExecutorEnvironment& environment, const Partition& partition,
               std::unique_ptr<BodyRunner> own_bodies)
      : environment_(environment),
        guard_(partition.guard),
        total_micro_batches_(partition.total_micro_batches),
        own_bodies_(std::move(own_bodies)),
        slots_(environment),
        scalars_(step_.scalars),
        feeds_ahead_(step_, feed_staging_),
        external_buffers_(step_),
        own_arena_(*environment.device),
        arena_(environment.arena != nullptr ? *environment.arena : own_arena_) {}
  // Streams go first: the end of each waits for what it was given, where a step could not wait so
  // long. Then goes what that used. The thread, which gives them work, goes before them.
  ~CompiledStep() override {
    communication_.reset();
    collective_stream_.reset();
    feeds_ahead_.End();
    lanes_.clear();
    communication_stream_.reset();
    compute_stream_.reset();
  }

  // Lays out the arena and makes streams and instructions, without addresses; those come with the
  // first Prepare. Called once, before all else.
  absl::Status Build(LoweredStep step);

  absl::Status Prepare() override;
  absl::Status RunInto(const StepOptions& options, StepResult& result) override;
  StepState state() const override { return state_; }
  absl::Status Finish(StepResult& result) override;
  bool finishes_alone() const override { return finishes_alone_; }
  const ProgramMemory& memory() const override { return memory_; }
  void EnableStatistics(bool enabled) override { statistics_enabled_ = enabled; }
  std::vector<NodeStatistics> statistics() const override;
  std::vector<std::string> host_nodes() const override;
  std::string DebugString() const override { return Describe(step_); }

 private:
  absl::Status AddStepNumber();
  absl::Status BuildStreams();
  // Where steps commit, and whether they end without other ranks after that.
  void FindCommit();
  absl::Status BuildCollectiveStream();
  absl::Status BuildLanes();
  void MeasureConstants();
  void MeasureMemory(const MemoryPlan& plan);
  // Calls visit(lowered, instruction) for both lists.
  template <typename Visit>
  absl::Status ForEach(const Visit& visit);
  absl::Status AddStaging(const LoweredInstruction& lowered, Instruction& instruction) const;
  absl::Status PrepareTransfers(size_t sends);
  absl::Status RunPrepared(const StepOptions& options, StepResult& result);
  absl::Status RunActions(const StepOptions& options);
  absl::Status RunPart(size_t first, size_t last, const StepOptions& options);
  absl::Status RunOnDevice(size_t first, size_t last);
  absl::Status RunTimed(size_t first, size_t last, const StepOptions& options);
  absl::StatusOr<int64_t> LaunchNanos(size_t i);
  absl::Status Execute(Instruction& instruction, Stream& stream);
  absl::Status ExecuteOther(Instruction& instruction, Stream& stream);
  absl::Status ExecuteOnHost(Instruction& instruction, Stream& stream);
  // Runs operation(addresses) on what the host touches of the instruction.
  template <typename Operation>
  absl::Status OnHost(Instruction& instruction, Stream& stream, const Operation& operation) const;
  // The same, counting its time as waiting for peers. On the compute thread.
  template <typename Operation>
  absl::Status TimedOnHost(Instruction& instruction, Stream& stream, const Operation& operation);
  template <typename Wait>
  absl::Status Timed(const Wait& wait);
  absl::Status Fill(const lowered::Fill& fill, void* target);
  absl::Status FillDevice(const bound::Fill& fill, Stream& stream);
  absl::Status Send(Instruction& instruction, const void* data);
  absl::Status SendWhatIsThere(bool wait);
  absl::Status Guard(const lowered::Guard& guard, const void* data);
  absl::Status Commit(Stream& stream);
  MessageKey KeyOf(const Instruction& instruction) const {
    const auto* const collective = instruction.As<bound::Collective>();
    const bool is_across = collective != nullptr && collective->what->across_micro_batches;
    return {current_step_, is_across ? -1 : instruction.micro_batch};
  }
  absl::Status RunCommunication(int i);
  // On the device, on the one stream of all collectives there: one of the compute list, ...
  absl::Status RunCollective(const Instruction& instruction, Stream& stream);
  // ... and those of the communication list that may run after so many signals.
  absl::Status StartCollectives(int signals);
  // On the device: puts a send or a receive into the stream of its lane, which waits for the
  // compute stream before and records `done` after it.
  absl::Status Transfer(const Instruction& instruction, int channel, int lane, const void* buffer,
                        Event& done);
  absl::Status Await(int count, Stream& stream);
  // Why bytes mean nothing: a collective on the device has ended before its time.
  absl::Status CollectivesStatus() const;
  void Abort(const absl::Status& reason);
  absl::Status Fail(const Instruction& instruction, const absl::Status& status) const;
  absl::Status PlaceReports(StepResult& result);
  absl::Status ReadReports(StepResult& result);
  // False where a stream is still at work when the time for it is over.
  bool Drain();
  // What that work may use, also of the caller's, stays until it is over.
  void HoldWhatIsInUse(const StepResult& result);
  // Ends a step that could not be drained.
  absl::Status EndFormerStep();

  const ExecutorEnvironment environment_;
  const std::string guard_;
  const int total_micro_batches_;
  std::unique_ptr<BodyRunner> own_bodies_;  // unless the environment has one
  LoweredStep step_;
  ValueSlots slots_;
  StepScalars scalars_;
  const MemoryWork* memory_work_ = nullptr;
  // Where the host cannot reach the device's memory:
  std::vector<FeedStaging> feed_staging_;  // by feed
  FeedsAhead feeds_ahead_;
  DeferredSends sends_;
  RecordedSegments segments_;
  ExternalBuffers external_buffers_;  // none where the host cannot reach the device's memory
  Arena own_arena_;                   // unless the environment has one
  Arena& arena_;
  void* arena_memory_ = nullptr;  // that the addresses are in
  int64_t arena_use_ = -1;        // of the last step
  bool prepared_ = false;
  bool is_under_way_ = false;                      // a step that has returned
  std::vector<std::shared_ptr<const void>> held_;  // that the step may use, though it has failed
  std::vector<Instruction> compute_;
  std::vector<Instruction> communication_list_;
  std::vector<std::unique_ptr<Event>> signal_events_;  // compute has come to the signal
  std::vector<std::unique_ptr<Event>> done_events_;    // communication is over, by instruction
  std::unique_ptr<Stream> compute_stream_;
  std::unique_ptr<Stream> communication_stream_;
  std::unique_ptr<Stream> collective_stream_;  // null: no collective runs on the device
  std::unique_ptr<Event> collective_ready_;    // compute has made what it works on
  std::unique_ptr<Event> collective_done_;     // and may go on
  // Of sends and receives on the device.
  struct Lane {
    std::unique_ptr<Event> ready;     // compute has come to the send or receive
    std::unique_ptr<Event> received;  // of the last receive
    std::unique_ptr<Stream> stream;
  };
  std::vector<Lane> lanes_;                     // by lowered::Send::lane
  std::map<int, std::unique_ptr<Event>> sent_;  // of the last send, by channel
  bool uses_device_collectives_ = false;
  size_t started_ = 0;                   // of the communication list, in this step
  std::vector<int> thread_jobs_;         // of the communication list, what is staged
  std::unique_ptr<Stream> host_stream_;  // of kernels that run on the host (HostRun)
  bool host_accessible_ = true;
  ProgramMemory memory_;
  int64_t current_step_ = 0;
  bool guard_failed_ = false;  // in the current step
  StepState state_ = StepState::kDone;
  size_t commit_ = 0;  // of compute_: the Commit; the list's size where there is none
  bool finishes_alone_ = false;
  std::map<std::string, Tensor> ready_reports_;  // of a step in kReady
  size_t first_update_ = 0;   // of compute_: after everything that belongs to a micro-batch
  int64_t waited_nanos_ = 0;  // in the current step; of the compute thread
  int64_t update_nanos_ = 0;
  bool statistics_enabled_ = false;
  struct Timing {
    int64_t calls = 0;
    int64_t nanoseconds = 0;
  };
  std::vector<Timing> timings_;  // by info
  // On devices whose work launches: what each of compute_ takes, once it was timed.
  std::vector<int64_t> launch_nanos_;
  std::unique_ptr<CommunicationThread> communication_;
};

template <typename Wait>
absl::Status CompiledStep::Timed(const Wait& wait) {
  const int64_t begin = environment_.clock->MonotonicNanos();
  absl::Status status = wait();
  waited_nanos_ += environment_.clock->MonotonicNanos() - begin;
  return status;
}

// As CompileStep. REQUIRES: the environment has a BodyRunner, which is `own_bodies` or outlives the
// program.
absl::StatusOr<std::unique_ptr<StepProgram>> CompileWithBodies(
    const Partition& partition, const ExecutorEnvironment& environment,
    std::unique_ptr<BodyRunner> own_bodies);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_COMPILED_STEP_H_
