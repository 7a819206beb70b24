// What all depthwise kernels are compiled for, besides the strips (strips.cuh).
// Macros: CHANNELS of the result (of dY for dW), so that the columns of a row are at distances known at compile time;
// MULTIPLIER: output channels per input channel.
#pragma once
#include "conv2d/strips.cuh"

constexpr int CHANNELS = ALPHA_CHANNELS, MULTIPLIER = ALPHA_MULTIPLIER, SOURCE_CHANNELS = CHANNELS / MULTIPLIER;
constexpr int MAX_THREADS = 128;
