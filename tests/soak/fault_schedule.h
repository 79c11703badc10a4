// FaultSchedule: a job and what befalls it, drawn from a seed; pure data.
#ifndef WEFT_TESTS_SOAK_FAULT_SCHEDULE_H_
#define WEFT_TESTS_SOAK_FAULT_SCHEDULE_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "distributed/testing/fault_injecting_transport.h"
#include "graph/plan.h"

namespace weft::testing {

// What a fault does to the job at most.
enum class Harm {
  kNone,        // it is ridden out: no worker is lost, no step, and nothing is said
  kSavesLess,   // the same, but checkpoints may be missing; each is told
  kLosesRank,   // the rank and its replica are lost; the others go on, where the job may
  kEndsJob,     // an error that says what has happened; what is saved is good
  kEndsRun,     // all workers end, as those of --local do with their coordinator
  kEndsSaving,  // nothing reaches the disk any more, as after a kill of all processes at once
  kLeaves,      // the rank leaves; the others go on, or the job saves its state and stops
  kDiverges,    // copies differ: with three of them it is repaired, with two the job ends
};

// How a fault strikes.
enum class Strike {
  kSilence,   // from a message of the rank on, none of its messages arrives and no call is answered
  kPause,     // a message of the rank leaves later
  kSlow,      // so do many in a row, as where the rank has a fifth of a processor
  kMessage,   // a message of the rank is changed (TransportFault)
  kAsked,     // the rank is lost when it is called after another loss
  kFullDisk,  // from a step on, all changes to the disk fail with ENOSPC
  kDiskError,  // one change to the disk fails with EIO
  kDeadDisk,   // from a change to the disk on, none is made
  kEnd,        // after a step, all workers end; what is on its way to the disk still arrives
  kLeave,      // after a step, the rank wants to leave on purpose
  kFlip,       // after a step, a bit of a variable of the rank flips, where replicas have copies
};

// Whom kSilence takes.
enum class Struck {
  kOne,
  kTwo,   // and another rank, at the same moment
  kHost,  // and the rank on the same host: hosts have the ranks 0 and 1, 2 and 3
};

// A kind of fault. A new one is a row of FaultRows(); one that strikes in a new way also needs a
// value of Strike, which SoakWorkers or RunSchedule carries out.
struct FaultRow {
  const char* name;
  Strike strike;
  Harm harm;
  // Of kSilence: the virtual seconds until the others notice. Of kPause and kSlow: how long at
  // most.
  double seconds = 0;
  TransportFault::Kind message = TransportFault::Kind::kDrop;
  // Of kEndsJob and kDiverges: what the error says, as a regular expression.
  const char* error = "";
  // Of kSilence.
  Struck struck = Struck::kOne;
  bool returns = false;  // a new worker comes in its place
  // Of kSilence and kMessage: of the messages that carry copies of the rank's state
  // (--replicate), and not of those of steps.
  bool of_copies = false;
};

const std::vector<FaultRow>& FaultRows();

// One fault of a schedule.
struct SoakFault {
  const FaultRow* row = nullptr;
  int rank = 0;         // of the job as it begins
  int other_rank = -1;  // that is struck with it; -1: none
  // The how manieth message of the rank (those of steps and those of copies count apart), change to
  // the disk, step, or call; from 0.
  int64_t moment = 0;
  double seconds = 0;   // virtual, as in the row
  int later_sends = 1;  // TransportFault::later_sends
};

inline constexpr int64_t kSoakSteps = 40;  // of each job

struct FaultSchedule {
  int seed = 0;
  Mesh mesh;
  int zero = 0;                // Plan::zero
  bool waits = false;          // --on-loss wait
  bool goes_on = true;         // --on-loss continue; else stop
  bool long_stretches = true;  // the loop gives out many steps at once; else one by one
  int64_t checkpoint_every = 0;
  // --replicate: steps between copies of each rank's state in another's memory; 0: there are none.
  int64_t replicate_every = 0;
  std::vector<SoakFault> faults;
};

// Same seed, same schedule. `row`, if any, is the kind of its first fault.
FaultSchedule DrawSchedule(int seed, const FaultRow* row = nullptr);

// "seed 7: dp=2 x tp=1 x pp=2, goes on, saves every 5 steps; kill of rank 1 at 37, ..."
std::string DescribeSchedule(const FaultSchedule& schedule);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SOAK_FAULT_SCHEDULE_H_
