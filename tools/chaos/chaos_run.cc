#include "tools/chaos/chaos_run.h"

#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "platform/polling.h"
#include "platform/status_macros.h"
#include "tools/chaos/process_tree.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(10);
// How long a worker that was lost is away before chaos starts it anew.
constexpr absl::Duration kAway = absl::Seconds(1);
// How long processes of a job may take to end with it.
constexpr absl::Duration kOrphanPatience = absl::Seconds(5);

absl::Time NowOfRun() { return RealClock().Now(); }

// Nobody notifies of what other processes do.
void WaitForNextLook() {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  const absl::Time deadline = NowOfRun() + kLookEvery;
  while (RealClock().WaitUntil(never, mutex, deadline)) {
  }
}

bool EndedWith(const ExitStatus& ended, ExitCode code) {
  return ended.signal == 0 && ended.code == static_cast<int>(code);
}

// Whether the job may say that a worker is lost.
bool MayLose(const ChaosFault& fault) {
  return RowOf(fault.kind).may_lose && (fault.seconds == 0 || fault.is_long);
}

}  // namespace

ChaosRun::ChaosRun(const ChaosPlace& place, ChaosSchedule schedule, int number,
                   ChaosWorkers* workers)
    : place_(place), number_(number), workers_(workers) {
  outcome_.schedule = std::move(schedule);
  for (const ChaosFault& fault : outcome_.schedule.faults) {
    outcome_.faults.emplace_back();
    outcome_.faults.back().fault = fault;
  }
  awaits_word_.resize(outcome_.faults.size(), false);
}

ChaosRun::~ChaosRun() {
  EndFaults();
  process_.reset();  // which kills it; workers of --local end with it
  EndOrphans(kOrphanPatience);
}

std::string ChaosRun::PathOf(const std::string& name) const {
  return absl::StrCat(place_.folder, "/run", number_, "-", name);
}

double ChaosRun::Since() const { return absl::ToDoubleSeconds(NowOfRun() - began_); }

absl::Status ChaosRun::StartJob() {
  const ChaosJob& job = place_.job;
  const std::string start = absl::StrCat(starts_);
  ProcessOptions options;
  std::vector<std::string>& words = options.arguments;
  words = {place_.program, "train", "--config", place_.folder + "/job.yaml"};
  const auto add = [&words](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  add({"--out", PathOf("model.onnx"), "--metrics", PathOf(start + ".csv")});
  add({"--checkpoint", place_.folder + "/saved", "--checkpoint-every",
       job.checkpoint_every.empty() ? absl::StrCat(place_.checkpoint_every)
                                    : job.checkpoint_every});
  if (starts_ > 0) add({"--resume"});
  if (workers_ != nullptr) {
    add(workers_->flags());
  } else {
    if (!job.local.empty()) add({"--local", job.local});
    if (!job.device.empty()) add({"--device", job.device});
  }
  // What a killed job leaves in the folder for temporary files goes with the folder of all runs.
  options.environment = {{"TMPDIR", place_.folder}};
  options.standard_output = {.kind = ProcessOutput::Kind::kDiscard, .path = ""};
  options.standard_error = {.kind = ProcessOutput::Kind::kFile, .path = PathOf(start + ".log")};
  options.own_process_group = true;
  watch_ = std::make_unique<RunWatch>(PathOf(start + ".csv"), PathOf(start + ".log"));
  WEFT_ASSIGN_OR_RETURN(process_, place_.launcher.Start(options));
  ++starts_;
  is_killed_ = false;
  last_error_ = "";
  seen_steps_ = 0;
  progress_at_ = NowOfRun();
  return absl::OkStatus();
}

absl::StatusOr<ChaosOutcome> ChaosRun::Run() {
  began_ = NowOfRun();
  WEFT_RETURN_IF_ERROR(place_.disk.Clear());
  WEFT_RETURN_IF_ERROR(StartJob());
  std::optional<ExitStatus> ended;
  while (!outcome_.has_hung) {
    WaitForNextLook();
    if (place_.is_stopped()) return absl::CancelledError("chaos was told to end");
    // Asked before the look, so that all it has said is seen.
    ended = process_->Poll();
    Look();
    if (ended.has_value()) {
      WEFT_ASSIGN_OR_RETURN(const bool goes_on, GoesOn(*ended));
      if (!goes_on) break;
      continue;
    }
    KeepUp();
    WEFT_RETURN_IF_ERROR(StrikeDue());
    if (workers_ != nullptr) WEFT_RETURN_IF_ERROR(workers_->Revive(kAway));
    if (NowOfRun() - progress_at_ <= place_.timeout) continue;
    outcome_.has_hung = true;
    outcome_.complaints.push_back(absl::StrCat("it hangs: no step within ",
                                               absl::FormatDuration(place_.timeout), " after step ",
                                               watch_->steps()));
  }
  Conclude(ended.value_or(ExitStatus()));
  return outcome_;
}

void ChaosRun::Look() {
  const std::vector<std::string> lines = watch_->Look();
  for (const std::string& line : lines) {
    if (!IsNews(line)) continue;
    if (absl::StartsWith(line, "error: ")) last_error_ = line;
    // It is told with the fault that has struck last.
    StruckFault* latest = nullptr;
    for (size_t i = 0; i < outcome_.faults.size(); ++i) {
      if (!outcome_.faults[i].has_struck) continue;
      latest = &outcome_.faults[i];
      awaits_word_[i] = false;
    }
    if (latest != nullptr) latest->said.push_back(line);
    if (IsLoss(line) && !MayHaveLost()) {
      outcome_.complaints.push_back(absl::StrCat("a loss without a cause: ", line));
    }
  }
  if (watch_->steps() <= seen_steps_) return;
  seen_steps_ = watch_->steps();
  progress_at_ = NowOfRun();
  for (size_t i = 0; i < outcome_.faults.size(); ++i) {
    StruckFault& struck = outcome_.faults[i];
    if (!struck.has_struck || awaits_word_[i] || struck.next_step_seconds.has_value()) continue;
    struck.next_step_seconds = Since() - struck.seconds;
  }
}

void ChaosRun::KeepUp() {
  const absl::Time now = NowOfRun();
  for (const auto& slow : slow_) slow->Turn(now);
  for (size_t i = 0; i < ongoing_.size();) {
    if (ongoing_[i].end > now) {
      ++i;
      continue;
    }
    const std::function<void()> undo = std::move(ongoing_[i].undo);
    ongoing_.erase(ongoing_.begin() + static_cast<std::ptrdiff_t>(i));
    undo();
    progress_at_ = std::max(progress_at_, now);
  }
}

void ChaosRun::EndFaults() {
  std::vector<OngoingFault> ongoing;
  ongoing.swap(ongoing_);
  for (const OngoingFault& fault : ongoing) fault.undo();
  slow_.clear();
}

absl::Status ChaosRun::StrikeDue() {
  // The end of the job is awaited first.
  if (is_killed_ || next_fault_ >= outcome_.faults.size()) return absl::OkStatus();
  StruckFault& next = outcome_.faults[next_fault_];
  if (watch_->steps() < next.fault.step) return absl::OkStatus();
  ++next_fault_;
  next.step = watch_->steps();
  next.seconds = Since();
  return Strike(next);
}

absl::Status ChaosRun::Strike(StruckFault& struck) {
  awaits_word_[next_fault_ - 1] = MayLose(struck.fault);
  switch (struck.fault.kind) {
    case FaultKind::kKill:
    case FaultKind::kStop:
    case FaultKind::kLeave:
    case FaultKind::kQuota:
      return StrikeWorker(struck);
    case FaultKind::kCut:
    case FaultKind::kReset:
    case FaultKind::kFlip:
      return StrikeConnections(struck);
    case FaultKind::kCoordinator:
    case FaultKind::kInterrupt:
      return StrikeCoordinator(struck);
    case FaultKind::kDisk:
      break;
  }
  struck.target = "checkpoints";
  if (!place_.disk.why_not_full().empty()) {
    struck.note = absl::StrCat("the folder is away instead of full: ", place_.disk.why_not_full());
  }
  WEFT_RETURN_IF_ERROR(place_.disk.Begin());
  struck.has_struck = true;
  ongoing_.push_back({NowOfRun() + absl::Seconds(struck.fault.seconds),
                      [this] { place_.disk.End().IgnoreError(); }});
  return absl::OkStatus();
}

absl::Status ChaosRun::StrikeCoordinator(StruckFault& struck) {
  const bool kills = struck.fault.kind == FaultKind::kCoordinator;
  struck.target = absl::StrCat("coordinator pid ", process_->id());
  struck.has_struck = process_->Signal(kills ? SIGKILL : SIGTERM).ok();
  if (!struck.has_struck) struck.note = "it had ended";
  is_killed_ = struck.has_struck;
  // A step of the process that ends is none of the one that comes.
  awaits_word_[next_fault_ - 1] = true;
  return absl::OkStatus();
}

std::vector<int64_t> ChaosRun::LivingWorkers() const {
  std::vector<int64_t> ids;
  if (workers_ != nullptr) {
    for (const int worker : workers_->living()) ids.push_back(workers_->process(worker).id());
    return ids;
  }
  for (const RunningProcess& child : ChildrenOf(place_.files, process_->id())) {
    if (child.is_worker()) ids.push_back(child.id);
  }
  return ids;
}

bool ChaosRun::SignalWorker(int64_t id, int signal) const {
  // Those of --local may have been adopted since.
  const int64_t parent =
      workers_ != nullptr || process_ == nullptr ? CurrentProcessId() : process_->id();
  return SignalChild(place_.files, parent, id, signal).ok();
}

absl::Status ChaosRun::StrikeWorker(StruckFault& struck) {
  std::vector<int64_t> living = LivingWorkers();
  const bool leaves = struck.fault.kind == FaultKind::kLeave;
  if (leaves) {
    // A second SIGTERM ends a worker at once, while it hands its state over.
    living.erase(std::remove_if(living.begin(), living.end(),
                                [this](int64_t id) { return leaving_.count(id) > 0; }),
                 living.end());
  }
  if (living.empty()) {
    struck.note = leaves && !leaving_.empty() ? "no worker lived that was not leaving already"
                                              : "no worker lived";
    return absl::OkStatus();
  }
  const int64_t id = living[static_cast<size_t>(struck.fault.worker) % living.size()];
  struck.target = absl::StrCat("worker pid ", id);
  const absl::Time end = NowOfRun() + absl::Seconds(struck.fault.seconds);
  switch (struck.fault.kind) {
    case FaultKind::kKill:
      struck.has_struck = SignalWorker(id, SIGKILL);
      break;
    case FaultKind::kLeave:
      struck.has_struck = SignalWorker(id, SIGTERM);
      leaving_.insert(id);
      break;
    case FaultKind::kStop:
      struck.has_struck = SignalWorker(id, SIGSTOP);
      ongoing_.push_back({end, [this, id] { SignalWorker(id, SIGCONT); }});
      break;
    default: {
      slow_.push_back(std::make_unique<SlowWorker>(
          place_.files, id, [this, id](int signal) { return SignalWorker(id, signal); }));
      SlowWorker* const slow = slow_.back().get();
      if (!slow->why_no_group().empty()) {
        struck.note =
            absl::StrCat("stopped for 80 ms of each 100 ms instead: ", slow->why_no_group());
      }
      struck.has_struck = true;
      ongoing_.push_back({end, [slow] { slow->End(); }});
    }
  }
  if (!struck.has_struck) struck.note = "it had ended";
  return absl::OkStatus();
}

absl::Status ChaosRun::StrikeConnections(StruckFault& struck) {
  const std::vector<int> living = workers_ == nullptr ? std::vector<int>() : workers_->living();
  if (living.empty()) {
    struck.note = "no worker lived";
    return absl::OkStatus();
  }
  const int worker = living[static_cast<size_t>(struck.fault.worker) % living.size()];
  struck.target = absl::StrCat("worker ", worker, " pid ", workers_->process(worker).id());
  struck.has_struck = true;
  if (struck.fault.kind == FaultKind::kReset) {
    workers_->proxy(worker).Reset();
    return absl::OkStatus();
  }
  if (struck.fault.kind == FaultKind::kFlip) {
    workers_->proxy(worker).FlipBit();
    return absl::OkStatus();
  }
  workers_->proxy(worker).SetCut(true);
  ongoing_.push_back({NowOfRun() + absl::Seconds(struck.fault.seconds),
                      [this, worker] { workers_->proxy(worker).SetCut(false); }});
  return absl::OkStatus();
}

bool ChaosRun::MayHaveLost() const {
  return std::any_of(outcome_.faults.begin(), outcome_.faults.end(), [](const StruckFault& struck) {
    return struck.has_struck && MayLose(struck.fault);
  });
}

bool ChaosRun::HasStruck(FaultKind kind) const {
  return std::any_of(
      outcome_.faults.begin(), outcome_.faults.end(),
      [kind](const StruckFault& struck) { return struck.has_struck && struck.fault.kind == kind; });
}

absl::StatusOr<bool> ChaosRun::GoesOn(const ExitStatus& ended) {
  outcome_.exits.push_back(ended.DebugString());
  outcome_.last_code = ended.signal == 0 ? ended.code : static_cast<int>(ExitCode::kInternal);
  if (!watch_->complaint().empty()) outcome_.complaints.push_back(watch_->complaint());
  for (const auto& [step, loss] : watch_->losses()) {
    const auto [entry, is_new] = losses_.emplace(step, loss);
    if (is_new || entry->second == loss || !place_.job.is_strict) continue;
    outcome_.complaints.push_back(absl::StrCat("step ", step, ", done again, has loss ", loss,
                                               " instead of ", entry->second));
  }
  if (ended.success()) return false;
  const bool was_stopped = EndedWith(ended, ExitCode::kStopped) &&
                           (HasStruck(FaultKind::kInterrupt) || HasStruck(FaultKind::kLeave));
  const bool has_lost =
      EndedWith(ended, ExitCode::kTryAgain) && (MayHaveLost() || HasStruck(FaultKind::kLeave));
  const bool was_killed =
      ended.signal == SIGKILL && is_killed_ && HasStruck(FaultKind::kCoordinator);
  // A bit that has flipped may be of anything, and so may the error: but it is an error of the job.
  const bool was_refused = HasStruck(FaultKind::kFlip) && ended.signal == 0 &&
                           !last_error_.empty() && !EndedWith(ended, ExitCode::kInternal) &&
                           !EndedWith(ended, ExitCode::kNumerics);
  if (!was_stopped && !has_lost && !was_killed && !was_refused) {
    outcome_.complaints.push_back(absl::StrCat("the job ended: ", ended.DebugString(),
                                               last_error_.empty() ? "" : ": ", last_error_));
    return false;
  }
  if (has_lost && !absl::StrContains(last_error_, "worker")) {
    outcome_.complaints.push_back(absl::StrCat("the error names no worker: ", last_error_));
  }
  // Each fault ends the job once, and a fault in a start that follows once more.
  if (starts_ > 2 * static_cast<int>(outcome_.faults.size()) + 1) {
    outcome_.complaints.push_back("the job ends again and again");
    return false;
  }
  EndFaults();
  EndOrphans(kOrphanPatience);
  if (workers_ != nullptr) WEFT_RETURN_IF_ERROR(workers_->ReviveAll());
  WEFT_RETURN_IF_ERROR(StartJob());
  return true;
}

void ChaosRun::EndOrphans(absl::Duration patience) {
  std::vector<int64_t> known = workers_ != nullptr ? workers_->ids() : std::vector<int64_t>();
  if (process_ != nullptr) known.push_back(process_->id());
  const auto left = [&] {
    ReapAdopted(place_.files, known);
    std::vector<RunningProcess> children = ChildrenOf(place_.files, CurrentProcessId());
    std::erase_if(children, [&](const RunningProcess& child) {
      return std::find(known.begin(), known.end(), child.id) != known.end();
    });
    return children;
  };
  const absl::Time deadline = NowOfRun() + patience;
  std::vector<RunningProcess> children = left();
  while (!children.empty() && NowOfRun() < deadline) {
    WaitForNextLook();
    children = left();
  }
  for (const RunningProcess& child : children) {
    ++outcome_.orphans;
    outcome_.complaints.push_back(absl::StrCat(
        "process ", child.id, " was left behind: ", absl::StrJoin(child.arguments, " ")));
    SignalChild(place_.files, CurrentProcessId(), child.id, SIGKILL).IgnoreError();
  }
  ReapAdopted(place_.files, known);
}

void ChaosRun::Conclude(const ExitStatus& ended) {
  EndFaults();
  outcome_.seconds = Since();
  if (outcome_.has_hung) {
    process_.reset();
  }
  EndOrphans(kOrphanPatience);
  outcome_.result.model = PathOf("model.onnx");
  outcome_.result.losses = losses_;
  outcome_.steps = losses_.empty() ? 0 : losses_.rbegin()->first + 1;
  if (outcome_.has_hung || !ended.success()) return;
  const auto sha256 = Sha256OfFile(place_.files, outcome_.result.model);
  if (sha256.ok()) {
    outcome_.result.sha256 = *sha256;
  } else {
    outcome_.complaints.push_back(
        absl::StrCat("no model was written: ", std::string(sha256.status().message())));
  }
  const bool any = std::any_of(outcome_.faults.begin(), outcome_.faults.end(),
                               [](const StruckFault& struck) { return struck.has_struck; });
  if (!any && !outcome_.faults.empty()) {
    outcome_.complaints.push_back("the job ended before anything befell it: give it more --steps");
  }
}

}  // namespace weft
