// What most of our tests include, compiled once for all of them (see standard.h).

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "third_party/precompiled/standard.h"
