// Small steps, of which each has one kind of transfer: for tests of what puts their work in order.
#ifndef WEFT_EXECUTOR_LOWERING_TESTING_ORDERED_JOBS_H_
#define WEFT_EXECUTOR_LOWERING_TESTING_ORDERED_JOBS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "executor/interfaces/communicator.h"
#include "executor/program/step_program.h"
#include "graph/partition.h"
#include "tensor/device.h"

namespace weft::testing {

// Steps of which missing_order_test leaves out calls.
inline constexpr int64_t kOrderedSteps = 3;

// What a rank of a job with two ranks does in a step: four micro-batches of one sample [1, 2], a
// variable "w" that changes by "rate" times their sum, the report "got".
struct OrderedJob {
  std::string name;
  std::function<Partition()> make;
  DeviceKind kind = DeviceKind::kFake;
  std::vector<std::string> kernels = {};  // of a device of another kind: those of the CPU
  bool device_collectives = false;        // also sends and receives are in the order of streams
  int64_t poisoned_step = -1;             // whose samples are not numbers
  bool feeds_ahead = false;               // samples are copied on a stream of their own
  // What may be left out unseen: "compute record 2" for the third recording of that stream.
  std::map<std::string, std::string> covered = {};  // with the reason
};

void PrintTo(const OrderedJob& job, std::ostream* out);
std::vector<OrderedJob> OrderedJobs();

// One of two ranks that send each other a value for each micro-batch, and sum over both what they
// have received. To be run with a communicator.
Partition ExchangingStep(int rank);

// Rows of OrderedJob::covered. In each step the device's compute stream records so many events; of
// these, `covered` may be left out for this reason. In any job, the waits for its constants, and
// for the zeros of its variable.
std::map<std::string, std::string> CoveredCalls(int recordings, const std::vector<int>& covered,
                                                const std::string& reason, int constants);

// A job's rank on a device, with images of itself for peers unless it is given a communicator. One
// thread. On a device that the host reaches, no collective is in the order of streams. Borrows
// device and communicator.
class OrderedRun {
 public:
  OrderedRun(const OrderedJob& job, Device& device, Communicator* communicator = nullptr);
  ~OrderedRun();

  // Of the compile.
  const absl::Status& status() const;
  // Step s has samples of its own, receives values of its own, and changes "w" by a rate of its
  // own. REQUIRES: status().ok().
  absl::Status RunStep(int64_t step, StepResult& result, bool check_numerics = false);
  // "w", from the device, as text.
  std::string Variable();
  // The program ends.
  void End();
  // All that was sent, in order, as text. After End.
  std::string Sent() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft::testing

#endif  // WEFT_EXECUTOR_LOWERING_TESTING_ORDERED_JOBS_H_
