#include "ops/testing/emulator/grid_run.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace weft::testing {
namespace {

constexpr size_t kMaxResidentThreads = 2048;
constexpr int kMaxResidentBlocks = 4;
// A thread goes on for at most so many steps before another one may.
constexpr uint64_t kMaxTurn = 400;
constexpr uint64_t kMaxShuffledBlocks = 1 << 20;

const char* NameOf(Meeting meeting) {
  switch (meeting) {
    case Meeting::kNone:
      return "nothing";
    case Meeting::kBarrier:
      return "Barrier";
    case Meeting::kWarpBarrier:
      return "WarpBarrier";
    case Meeting::kShuffle:
      return "Shuffle";
    case Meeting::kShuffleXor:
      return "ShuffleXor";
    case Meeting::kShuffleDown:
      return "ShuffleDown";
    case Meeting::kShuffleUp:
      return "ShuffleUp";
    case Meeting::kAny:
      return "Any";
    case Meeting::kAll:
      return "All";
    case Meeting::kBallot:
      return "Ballot";
  }
  return "";
}

std::string MeetingOf(const EmulatedThread& thread) {
  return absl::StrCat(NameOf(thread.waits_at), " (", thread.line.file, ":", thread.line.line, ")");
}

bool MeetAtOnePlace(const EmulatedThread& a, const EmulatedThread& b) {
  return a.waits_at == b.waits_at && a.line.line == b.line.line &&
         std::strcmp(a.line.file, b.line.file) == 0;
}

bool IsShuffle(Meeting meeting) {
  return meeting == Meeting::kShuffle || meeting == Meeting::kShuffleXor ||
         meeting == Meeting::kShuffleDown || meeting == Meeting::kShuffleUp;
}

}  // namespace

GridRun::GridRun(const cuda::LaunchGrid& grid, const EmulatedBody& body,
                 const GridRunOptions& options, GridSurroundings surroundings)
    : grid_(grid),
      body_(body),
      options_(options),
      surroundings_(std::move(surroundings)),
      random_(options.seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D),
      total_blocks_(static_cast<uint64_t>(grid.blocks) * static_cast<uint64_t>(grid.blocks_y) *
                    static_cast<uint64_t>(grid.blocks_z)),
      nowhere_("no allocation", nullptr, 0) {
  for (int i = 0; i < 4; ++i) Random();
  const uint64_t order = Random(4);
  order_ = order == 0 ? Order::kForward : order == 1 ? Order::kBackward : Order::kRandom;
  max_resident_ = std::min<size_t>(
      1 + Random(kMaxResidentBlocks),
      std::max<size_t>(1, kMaxResidentThreads / static_cast<size_t>(grid.threads)));
  if (order_ != Order::kForward && total_blocks_ <= kMaxShuffledBlocks) {
    block_order_.resize(total_blocks_);
    std::iota(block_order_.begin(), block_order_.end(), 0U);
    for (size_t i = block_order_.size(); i > 1; --i) {
      std::swap(block_order_[i - 1], block_order_[Random(i)]);
    }
  }
  until_yield_ = static_cast<int64_t>(1 + Random(kMaxTurn));
}

GridRun::~GridRun() {
  for (auto& block : resident_) {
    for (EmulatedThread& thread : block->threads) {
      if (thread.fiber != nullptr) GiveFiber(std::move(thread.fiber));
    }
  }
  if (spare_fiber_ != nullptr) GiveFiber(std::move(spare_fiber_));
}

// xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled".
uint64_t GridRun::Random() {
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return (random_ * 0x2545F4914F6CDD1D) >> 16;
}

void GridRun::Run() {
  AdmitBlocks();
  while (!resident_.empty() && !has_given_up_) {
    const size_t i = Random(resident_.size());
    EmulatedBlock& block = *resident_[i];
    if (block.runnable_warps != 0) {
      RunSomeThreads(block);
      continue;
    }
    if (block.ended < grid_.threads) ReportStuck(block);
    EndBlock(i);
    AdmitBlocks();
  }
}

void GridRun::AdmitBlocks() {
  while (begun_ < total_blocks_ && resident_.size() < max_resident_) {
    const uint64_t next = begun_++;
    BeginBlock(block_order_.empty() ? static_cast<uint32_t>(next) : block_order_[next]);
  }
}

void GridRun::BeginBlock(uint32_t number) {
  std::unique_ptr<EmulatedBlock> block;
  if (!spare_.empty()) {
    block = std::move(spare_.back());
    spare_.pop_back();
  } else {
    block = std::make_unique<EmulatedBlock>();
  }
  std::vector<EmulatedThread> threads = std::move(block->threads);
  std::vector<EmulatedWarp> warps = std::move(block->warps);
  *block = EmulatedBlock{};
  threads.clear();
  warps.clear();
  block->threads = std::move(threads);
  block->warps = std::move(warps);
  block->number = number;
  const auto width = static_cast<uint64_t>(grid_.blocks);
  const auto height = static_cast<uint64_t>(grid_.blocks_y);
  block->x = static_cast<int64_t>(number % width);
  block->y = static_cast<int64_t>(number / width % height);
  block->z = static_cast<int64_t>(number / width / height);
  const int warp_count = (grid_.threads + cuda::kWarp - 1) / cuda::kWarp;
  block->warps.resize(static_cast<size_t>(warp_count));
  for (int i = 0; i < warp_count; ++i) {
    EmulatedWarp& warp = block->warps[static_cast<size_t>(i)];
    const int lanes = std::min(cuda::kWarp, grid_.threads - i * cuda::kWarp);
    warp.index = i;
    warp.lanes = lanes == cuda::kWarp ? ~0U : (1U << lanes) - 1;
    warp.runnable = warp.lanes;
    block->runnable_warps |= 1U << i;
  }
  block->threads.resize(static_cast<size_t>(grid_.threads));
  for (int i = 0; i < grid_.threads; ++i) {
    EmulatedThread& thread = block->threads[static_cast<size_t>(i)];
    thread.run = this;
    thread.block = block.get();
    thread.warp = &block->warps[static_cast<size_t>(i / cuda::kWarp)];
    thread.index = i;
  }
  resident_.push_back(std::move(block));
}

void GridRun::EndBlock(size_t resident) {
  for (EmulatedThread& thread : resident_[resident]->threads) {
    if (thread.fiber != nullptr) GiveFiber(std::move(thread.fiber));
  }
  for (EmulatedWarp& warp : resident_[resident]->warps) traffic_ += warp.traffic.Take();
  spare_.push_back(std::move(resident_[resident]));
  resident_.erase(resident_.begin() + static_cast<int64_t>(resident));
}

int GridRun::Pick(uint32_t mask) {
  if (order_ == Order::kForward) return std::countr_zero(mask);
  if (order_ == Order::kBackward) return 31 - std::countl_zero(mask);
  const int from = static_cast<int>(Random(32));
  return (std::countr_zero(std::rotr(mask, from)) + from) % 32;
}

void GridRun::RunSomeThreads(EmulatedBlock& block) {
  EmulatedWarp& warp = block.warps[static_cast<size_t>(Pick(block.runnable_warps))];
  // A warp goes on for a while, or stops for another.
  uint64_t turns = order_ == Order::kRandom ? 1 + Random(64) : 32;
  while (turns-- > 0 && warp.runnable != 0 && !has_given_up_) {
    EmulatedThread& thread =
        block.threads[static_cast<size_t>(warp.index * cuda::kWarp + Pick(warp.runnable))];
    if (thread.fiber == nullptr) {
      thread.fiber = spare_fiber_ != nullptr ? std::move(spare_fiber_) : TakeFiber();
      thread.fiber->Begin(&GridRun::RunThread, &thread);
      ++steps_;
    }
    thread.fiber->Resume();
    if (!thread.fiber->ended()) continue;
    thread.has_ended = true;
    ++block.ended;
    warp.runnable &= ~(1U << (thread.index % cuda::kWarp));
    if (warp.runnable == 0) block.runnable_warps &= ~(1U << warp.index);
    if (spare_fiber_ == nullptr) {
      spare_fiber_ = std::move(thread.fiber);
    } else {
      GiveFiber(std::move(thread.fiber));
    }
  }
}

void GridRun::RunThread(void* argument) {
  EmulatedThread& thread = *static_cast<EmulatedThread*>(argument);
  const GridRun& run = *thread.run;
  const EmulatedBlock& block = *thread.block;
  EmulatedGpu gpu(thread,
                  {thread.index, run.grid_.threads, block.x, block.y, block.z, run.grid_.blocks});
  run.body_.run(run.body_.data, gpu);
}

void GridRun::Step(EmulatedThread& thread) {
  if (has_given_up_) GiveUp(thread);
  if (++steps_ > options_.max_steps) {
    Report(thread, absl::StrCat("the launch has not ended after ", options_.max_steps,
                                " steps: does it run for ever?"));
    GiveUp(thread);
  }
  if (order_ != Order::kRandom || --until_yield_ > 0) return;
  until_yield_ = static_cast<int64_t>(1 + Random(kMaxTurn));
  Yield(thread);
}

void GridRun::Yield(EmulatedThread& thread) { thread.fiber->Suspend(); }

void GridRun::GiveUp(EmulatedThread& thread) {
  has_given_up_ = true;
  while (true) Yield(thread);
}

void GridRun::Wake(EmulatedBlock& block, EmulatedThread& thread) {
  thread.waits_at = Meeting::kNone;
  thread.warp->runnable |= 1U << (thread.index % cuda::kWarp);
  block.runnable_warps |= 1U << thread.warp->index;
}

void GridRun::FinishBarrier(EmulatedBlock& block) {
  const EmulatedThread& first = block.threads.front();
  for (const EmulatedThread& thread : block.threads) {
    if (MeetAtOnePlace(first, thread)) continue;
    Report(thread, absl::StrCat("waits at ", MeetingOf(thread), ", thread ", first.index, " at ",
                                MeetingOf(first), ": one barrier for each branch"));
    break;
  }
  block.at_barrier = 0;
  ++block.epoch;
  ++block.version;
  for (EmulatedThread& thread : block.threads) Wake(block, thread);
}

void EmulatedThread::Barrier(CodeLine at) {
  run->Step(*this);
  EmulatedBlock& own_block = *block;
  own_block.is_dirty |= is_dirty;
  is_dirty = false;
  own_block.has_fenced |= has_fenced;
  waits_at = Meeting::kBarrier;
  line = at;
  warp->runnable &= ~(1U << (index % cuda::kWarp));
  if (warp->runnable == 0) own_block.runnable_warps &= ~(1U << warp->index);
  if (++own_block.at_barrier == run->grid_.threads) run->FinishBarrier(own_block);
  run->Yield(*this);
}

uint64_t GridRun::BitsFor(const EmulatedBlock& block, const EmulatedThread& thread,
                          uint32_t votes) {
  const uint32_t lanes = thread.warp->lanes;
  const int lane = thread.index % cuda::kWarp;
  int from = lane;
  switch (thread.waits_at) {
    case Meeting::kAny:
      return votes != 0 ? 1 : 0;
    case Meeting::kAll:
      return votes == lanes ? 1 : 0;
    case Meeting::kBallot:
      return votes;
    case Meeting::kShuffle:
      from = thread.argument;
      break;
    case Meeting::kShuffleXor:
      from = lane ^ thread.argument;
      break;
    case Meeting::kShuffleDown:
      from = lane + thread.argument;
      break;
    case Meeting::kShuffleUp:
      from = lane - thread.argument;
      break;
    default:
      return thread.bits;
  }
  if (from < 0 || from >= cuda::kWarp || (lanes >> from & 1) == 0) return thread.bits;
  return block.threads[static_cast<size_t>(thread.warp->index * cuda::kWarp + from)].bits;
}

void GridRun::FinishWarp(EmulatedBlock& block, EmulatedWarp& warp) {
  const size_t begin = static_cast<size_t>(warp.index) * cuda::kWarp;
  const size_t count = static_cast<size_t>(std::popcount(warp.lanes));
  EmulatedThread& first = block.threads[begin];
  uint32_t votes = 0;
  for (size_t i = 0; i < count; ++i) {
    const EmulatedThread& thread = block.threads[begin + i];
    if (thread.bits != 0) votes |= 1U << i;
    if (MeetAtOnePlace(first, thread)) continue;
    Report(thread, absl::StrCat("waits at ", MeetingOf(thread), ", thread ", first.index, " at ",
                                MeetingOf(first), ": the threads of a warp meet at one place"));
    break;
  }
  uint64_t results[cuda::kWarp];
  for (size_t i = 0; i < count; ++i) {
    results[i] = BitsFor(block, block.threads[begin + i], votes);
  }
  if (first.waits_at == Meeting::kWarpBarrier || options_.shuffles_order_memory) ++warp.epoch;
  warp.arrived = 0;
  for (size_t i = 0; i < count; ++i) {
    block.threads[begin + i].bits = results[i];
    Wake(block, block.threads[begin + i]);
  }
}

uint64_t EmulatedThread::MeetWarp(Meeting meeting, uint64_t own_bits, int own_argument,
                                  CodeLine at) {
  run->Step(*this);
  waits_at = meeting;
  line = at;
  bits = own_bits;
  argument = own_argument;
  if (meeting != Meeting::kWarpBarrier && warp->lanes != ~0U) {
    run->Report(*this, absl::StrCat(MeetingOf(*this), " in a warp of fewer than 32 threads"));
  }
  if (IsShuffle(meeting) && (own_argument < 0 || own_argument >= cuda::kWarp)) {
    run->Report(*this,
                absl::StrCat(MeetingOf(*this), " by ", own_argument, ", which is not in [0, 32)"));
  }
  const uint32_t lane = 1U << (index % cuda::kWarp);
  warp->arrived |= lane;
  warp->runnable &= ~lane;
  if (warp->runnable == 0) block->runnable_warps &= ~(1U << warp->index);
  if (warp->arrived == warp->lanes) run->FinishWarp(*block, *warp);
  run->Yield(*this);
  return bits;
}

void GridRun::ReportStuck(const EmulatedBlock& block) {
  const EmulatedThread* waiting = nullptr;
  for (const EmulatedThread& thread : block.threads) {
    if (thread.has_ended) continue;
    // What a warp waits for says more than where its block does.
    if (waiting == nullptr ||
        (waiting->waits_at == Meeting::kBarrier && thread.waits_at != Meeting::kBarrier)) {
      waiting = &thread;
    }
  }
  const bool of_block = waiting->waits_at == Meeting::kBarrier;
  for (const EmulatedThread& thread : block.threads) {
    if (!of_block && thread.warp != waiting->warp) continue;
    if (!thread.has_ended && MeetAtOnePlace(*waiting, thread)) continue;
    Report(*waiting,
           absl::StrCat(
               "waits for ever at ", MeetingOf(*waiting), ": thread ", thread.index,
               thread.has_ended ? " has ended" : absl::StrCat(" waits at ", MeetingOf(thread))));
    return;
  }
  Report(*waiting, absl::StrCat("waits for ever at ", MeetingOf(*waiting)));
}

}  // namespace weft::testing
