#include "tests/soak/fault_schedule.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft::testing {
namespace {

using Kind = TransportFault::Kind;

// A rank of the jobs here sends some 400 messages, and a run makes some 60 changes to the disk. A
// moment that is never reached is a fault that does not come, which must be ridden out, too.
constexpr int64_t kMessages = 420;
constexpr int64_t kDiskChanges = 70;
constexpr int64_t kCalls = 4;
constexpr int64_t kCallsWithCopies = 10;  // also for what it holds

// Copies of a state travel in two messages, where those before have come by then.
int64_t CopyMessages(const FaultSchedule& schedule) {
  return kSoakSteps / std::max<int64_t>(1, schedule.replicate_every) + 2;
}

// What CheckHeader says, and who waits for what never comes: a step, or a copy, which ends the job
// where it ends.
constexpr char kMisfit[] =
    "worker:[0-9].*(message from rank [0-9] on stream [0-9]+ does not fit: (sequence number|step|"
    "micro-batch|size|job_id|element count|element type) is |waited .* for a copy of a state )|"
    "was waiting for ";

// What ReplicaCheck says.
constexpr char kDiffer[] = "worker:[0-9].* (has other|have other|have different) bits in ";

int64_t Below(std::mt19937_64& random, int64_t end) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
}

Mesh DrawMesh(std::mt19937_64& random) {
  static const std::vector<Mesh> kMeshes = {
      {.data = 2, .tensor = 1, .pipeline = 1}, {.data = 3, .tensor = 1, .pipeline = 1},
      {.data = 4, .tensor = 1, .pipeline = 1}, {.data = 4, .tensor = 1, .pipeline = 1},
      {.data = 2, .tensor = 1, .pipeline = 2}, {.data = 1, .tensor = 1, .pipeline = 2},
      {.data = 2, .tensor = 2, .pipeline = 1}, {.data = 1, .tensor = 2, .pipeline = 1}};
  return kMeshes[static_cast<size_t>(Below(random, static_cast<int64_t>(kMeshes.size())))];
}

// Plan::zero.
int DrawZero(std::mt19937_64& random, const Mesh& mesh) {
  const bool splits_state = mesh.data > 1 && mesh.size() == mesh.data && Below(random, 3) == 0;
  return splits_state ? 1 + static_cast<int>(Below(random, 3)) : 0;
}

// A rank has state that not all others have.
bool HasParts(const FaultSchedule& schedule) {
  return schedule.zero > 0 || schedule.mesh.size() > schedule.mesh.data;
}

// `must`: there are copies.
int64_t DrawCopies(std::mt19937_64& random, bool must) {
  static constexpr int64_t kEvery[] = {0, 1, 3, 10};
  return kEvery[must ? 1 + Below(random, 3) : Below(random, 4)];
}

// A rank that is struck with this one; -1: none.
int DrawOtherRank(std::mt19937_64& random, Struck struck, int rank, int ranks) {
  switch (struck) {
    case Struck::kOne:
      return -1;
    case Struck::kTwo:
      return (rank + 1 + static_cast<int>(Below(random, ranks - 1))) % ranks;
    case Struck::kHost:
      return (rank ^ 1) < ranks ? rank ^ 1 : -1;
  }
  return -1;
}

SoakFault DrawFault(std::mt19937_64& random, const FaultRow& row, const FaultSchedule& schedule) {
  const int ranks = schedule.mesh.size();
  SoakFault fault;
  fault.row = &row;
  fault.rank = static_cast<int>(Below(random, ranks));
  fault.other_rank = DrawOtherRank(random, row.struck, fault.rank, ranks);
  fault.seconds = row.seconds;
  switch (row.strike) {
    case Strike::kSilence:
    case Strike::kMessage:
      fault.moment = Below(random, row.of_copies ? CopyMessages(schedule) : kMessages);
      fault.later_sends = 1 + static_cast<int>(Below(random, 4));
      break;
    case Strike::kPause:
    case Strike::kSlow:
      fault.moment = Below(random, kMessages);
      fault.seconds = row.seconds * static_cast<double>(1 + Below(random, 100)) / 100;
      break;
    case Strike::kAsked:
      fault.moment = Below(random, schedule.replicate_every > 0 ? kCallsWithCopies : kCalls);
      break;
    case Strike::kFullDisk:
    case Strike::kLeave:
    case Strike::kEnd:
      fault.moment = Below(random, kSoakSteps);
      break;
    case Strike::kFlip:
      fault.moment = 1 + Below(random, kSoakSteps - 1);
      break;
    case Strike::kDiskError:
    case Strike::kDeadDisk:
      fault.moment = Below(random, kDiskChanges);
      break;
  }
  return fault;
}

bool IsOfDisk(const FaultRow& row) {
  return row.strike == Strike::kFullDisk || row.strike == Strike::kDiskError ||
         row.strike == Strike::kDeadDisk;
}

}  // namespace

const std::vector<FaultRow>& FaultRows() {
  static const auto* const rows = new std::vector<FaultRow>{
      {"kill", Strike::kSilence, Harm::kLosesRank},
      // Noticed by keepalive, after 4 s.
      {"freeze", Strike::kSilence, Harm::kLosesRank, 4},
      {"kill in recovery", Strike::kAsked, Harm::kLosesRank},
      {"kill of two", Strike::kSilence, Harm::kLosesRank, 0, Kind::kDrop, "", Struck::kTwo},
      {"kill of a host", Strike::kSilence, Harm::kLosesRank, 0, Kind::kDrop, "", Struck::kHost},
      {"frozen host", Strike::kSilence, Harm::kLosesRank, 4, Kind::kDrop, "", Struck::kHost},
      {"kill and return", Strike::kSilence, Harm::kLosesRank, 0, Kind::kDrop, "", Struck::kOne,
       true},
      {"host returns", Strike::kSilence, Harm::kLosesRank, 0, Kind::kDrop, "", Struck::kHost, true},
      {"kill in a copy", Strike::kSilence, Harm::kLosesRank, 0, Kind::kDrop, "", Struck::kOne,
       false, true},
      {"leave", Strike::kLeave, Harm::kLeaves},
      {"pause", Strike::kPause, Harm::kNone, 3},
      {"slow worker", Strike::kSlow, Harm::kNone, 0.3},
      {"flipped variable", Strike::kFlip, Harm::kDiverges, 0, Kind::kDrop, kDiffer},
      {"lost message", Strike::kMessage, Harm::kEndsJob, 0, Kind::kDrop, kMisfit},
      {"late message", Strike::kMessage, Harm::kEndsJob, 0, Kind::kDelay, kMisfit},
      {"double message", Strike::kMessage, Harm::kEndsJob, 0, Kind::kDuplicate, kMisfit},
      {"short message", Strike::kMessage, Harm::kEndsJob, 0, Kind::kTruncate, kMisfit},
      {"stale message", Strike::kMessage, Harm::kEndsJob, 0, Kind::kStaleJob, kMisfit},
      {"withheld credit", Strike::kMessage, Harm::kEndsJob, 0, Kind::kWithholdCredit, kMisfit},
      {"lost copy", Strike::kMessage, Harm::kEndsJob, 0, Kind::kDrop, kMisfit, Struck::kOne, false,
       true},
      {"late copy", Strike::kMessage, Harm::kEndsJob, 0, Kind::kDelay, kMisfit, Struck::kOne, false,
       true},
      // It is not kept, and another is made.
      {"flipped copy", Strike::kMessage, Harm::kNone, 0, Kind::kFlip, "", Struck::kOne, false,
       true},
      {"full disk", Strike::kFullDisk, Harm::kSavesLess},
      {"disk error", Strike::kDiskError, Harm::kSavesLess},
      {"lost coordinator", Strike::kEnd, Harm::kEndsRun},
      {"kill of all", Strike::kDeadDisk, Harm::kEndsSaving},
  };
  return *rows;
}

FaultSchedule DrawSchedule(int seed, const FaultRow* row) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  FaultSchedule schedule;
  schedule.seed = seed;
  const bool of_copies = row != nullptr && row->of_copies;
  do {
    schedule.mesh = DrawMesh(random);
    schedule.zero = DrawZero(random, schedule.mesh);
  } while (of_copies && !HasParts(schedule));
  schedule.goes_on = Below(random, 4) != 0 || of_copies;
  schedule.waits = Below(random, 3) == 0;
  schedule.long_stretches = Below(random, 2) != 0;
  schedule.checkpoint_every = 3 + Below(random, 10);
  // A job that stops at a loss needs none.
  if (schedule.goes_on && HasParts(schedule)) {
    schedule.replicate_every = DrawCopies(random, /*must=*/of_copies);
  }
  const std::vector<FaultRow>& rows = FaultRows();
  const int64_t count = 1 + Below(random, 3);
  bool changes_message = false;
  bool breaks_disk = false;
  bool flips = false;
  bool takes = false;  // copies away
  for (int64_t i = 0; i < count; ++i) {
    const FaultRow& drawn =
        i == 0 && row != nullptr
            ? *row
            : rows[static_cast<size_t>(Below(random, static_cast<int64_t>(rows.size())))];
    // A second of these would hide what the first has done.
    if (drawn.strike == Strike::kMessage && std::exchange(changes_message, true)) continue;
    if (IsOfDisk(drawn) && std::exchange(breaks_disk, true)) continue;
    // A loss at the same moment could take the copy that tells, and a leave as well.
    const bool takes_copies = drawn.harm == Harm::kLosesRank || drawn.harm == Harm::kLeaves ||
                              drawn.harm == Harm::kEndsRun;
    if (takes_copies && flips) continue;
    if (drawn.strike == Strike::kFlip && (takes || std::exchange(flips, true))) continue;
    takes |= takes_copies;
    schedule.faults.push_back(DrawFault(random, drawn, schedule));
    // Nobody is asked unless somebody is lost.
    if (drawn.strike == Strike::kAsked) {
      SoakFault first = DrawFault(random, rows.front(), schedule);
      if (first.rank == schedule.faults.back().rank) {
        first.rank = (first.rank + 1) % schedule.mesh.size();
      }
      schedule.faults.push_back(first);
    }
  }
  return schedule;
}

std::string DescribeSchedule(const FaultSchedule& schedule) {
  std::string text =
      absl::StrCat("seed ", schedule.seed, ": ", schedule.mesh.ToString(), " zero=", schedule.zero,
                   ", ", schedule.goes_on ? "goes on" : "stops", " at a loss",
                   schedule.waits ? " once others have come, " : ", ",
                   schedule.long_stretches ? "many steps" : "one step", " at once, saves every ",
                   schedule.checkpoint_every, " steps",
                   schedule.replicate_every == 0
                       ? std::string()
                       : absl::StrCat(", copies states every ", schedule.replicate_every));
  for (const SoakFault& fault : schedule.faults) {
    absl::StrAppend(&text, "; ", fault.row->name, " of rank ", fault.rank,
                    fault.other_rank >= 0 ? absl::StrCat(" and ", fault.other_rank) : "", " at ",
                    fault.moment);
    if (fault.seconds > 0) absl::StrAppendFormat(&text, " for %.2f s", fault.seconds);
    if (fault.row->message == Kind::kDelay) absl::StrAppend(&text, " by ", fault.later_sends);
  }
  return text;
}

}  // namespace weft::testing
